"""The group coordinators of a broker, and the work that they hand to others."""
