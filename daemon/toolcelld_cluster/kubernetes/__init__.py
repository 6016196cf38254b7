"""The engine for Kubernetes: a pod is a node, made when a session needs one, and removed when it has had none for a time.

Placement
  engine     what Placement asks for, and what becomes of each pod
  pods       a pod as Placement makes it, and as it reads it; computes
  mirror     the objects of a kind as the API server has them, by list and watch
  objects    what is read of an object of Kubernetes
  api        requests to the API server; the only module that speaks HTTP
each pod
  node       makes its Secret the keys of a toolcelld, and becomes that; clients and Placement speak with it alone
"""
