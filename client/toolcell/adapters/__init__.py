"""What agents and hosts plug in: one package for each, which encodes, forwards and decodes, and adds no policy.

Each needs an extra of the distribution, named like itself: `pip install 'toolcell[mcp]'`.
Nothing is imported here, so that one adapter does not load the libraries of another.
"""
