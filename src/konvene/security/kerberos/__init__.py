"""Kerberos: names and their mapping to principals, settings of a login, and the library GSS-API."""
