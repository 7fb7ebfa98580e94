"""Rights: the table of roles, and the list of grants that answers if a principal may do something. Pure.

Folded from the access service's events. The gateway's guard, the access service, replay and the simulator use the same list, so a
command's rights can be checked again at the sequence that allowed it.
"""
