"""Who owns a host, which run changes it now, and the credentials on the head."""
