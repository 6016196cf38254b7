"""What a tool file says of itself: described once per `digest` in a worker, cached, its `schemas` checked."""
