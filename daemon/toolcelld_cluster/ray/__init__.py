"""The engine for a Ray cluster: which nodes there are, what they have, and who may take it, is Ray's to say.

Placement
  engine     what Placement asks for; speaks neither with Ray nor with its libraries
  wants      what sessions wait for, so that Ray's autoscaler starts a node
  driver     a process beside it, the only one that imports Ray: a cluster that is lost takes this process with it
             and nothing else
each node of Ray's
  node       a detached actor, which has a toolcelld as its child; clients and Placement speak with that alone
"""
