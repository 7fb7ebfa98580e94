"""The test kit: what tests of several parts share, and no test.

- `eventually`: the one way to wait; `commits`: the one builder of commits
- a world for each core: `queue_world`, `placer_world`, `idle_world`, `agent_core`; `placer_on_bus` has the placer's service
- `nats_server`, `nats_cluster`, `hosts`, `loopback`, `small_disk`, `base_images`: real servers, networks, disks and images
"""
