"""Access tokens of OAUTHBEARER for a client: settings, the request to a token endpoint, renewal."""
