"""`toolcell new`: a working example of each kind of tool."""
