"""Security without I/O: principals, resources and operations, ACLs, SASL mechanisms, certificates, quotas.

Nothing here opens a socket or reads a clock. The broker and the clients pass in bytes, settings and times,
and carry out what these modules decide.
"""
