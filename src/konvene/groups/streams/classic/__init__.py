"""Members of the classic protocol in streams groups, and the conversion between both protocols."""
