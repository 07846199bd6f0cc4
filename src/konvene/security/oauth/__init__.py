"""OAUTHBEARER access tokens: JSON Web Tokens and the key sets that verify them."""
