"""`konvene log`: dump, verify, clean and repair log files."""
