"""What every server over HTTP needs: the listener, the check of who comes in, and the access token."""
