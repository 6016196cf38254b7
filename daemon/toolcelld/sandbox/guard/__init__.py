"""The guard: it creates and opens for writing, in a cell's stead, what lies in a project, and refuses protected names.

Landlock takes the right to create and to write in the project from the tool's processes. What they call to do it
waits for an answer of the guard (`questions`), an ancestor of theirs within the same confinement, which reads the name
once, looks at it (`names`), and does the operation itself with its own copy (`operations`), so that nothing can be
exchanged between look and act. What does not lie in the project goes on in the caller: there it has its rights.
"""
