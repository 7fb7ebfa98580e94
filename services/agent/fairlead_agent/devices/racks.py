"""Where simulated nodes stand: racks of nodes, blocks of racks, one spine. Pure."""


def rack_labels(number: int, nodes_per_rack: int, racks_per_block: int) -> dict[str, str]:
    """Labels of the node of that number (from 0); none where a rack holds none, no block where it holds no rack."""
    if nodes_per_rack < 1:
        return {}
    rack = number // nodes_per_rack
    labels = {"fairlead/rack": f"r{rack + 1}"}
    if racks_per_block >= 1:
        labels["fairlead/block"] = f"b{rack // racks_per_block + 1}"
    labels["fairlead/spine"] = "s1"
    return labels
