"""The topology of a streams group: validation, configuration, updates and source expressions."""
