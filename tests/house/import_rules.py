"""Which modules are pure cores, and what those may not touch.

In the contracts and the services that decide (queue, placer, access, storage) everything is a core but what is listed as a shell: a rule that
slips into a shell, or a clock that slips into a core, has to be defended in a review of this file. The others
are mostly shell, and list their cores.
"""

#: {pure package: {module within it (with all below it): why it is no pure core}}
SHELLS: dict[str, dict[str, str]] = {
    "fairlead_schemas": {},
    "fairlead_rights": {},
    "fairlead_access": {
        "__main__": "wires the process",
        "service": "wires the core to the bus",
    },
    "fairlead_storage": {
        "__main__": "wires the process",
        "service": "wires the core to the bus",
    },
    "fairlead_appproxy": {
        "__main__": "wires the process",
        "app_server": "takes browsers' requests",
        "connection": "reads and writes streams",
        "frame_splice": "passes bytes between transports",
        "service": "asks and answers over the bus",
        "service_server": "takes programs' requests",
        "service_table": "lets requests wait for replicas",
        "tunnel_server": "listens for clients and nodes",
    },
    "fairlead_queue": {
        "__main__": "wires the process",
        "service": "wires the core to the bus",
    },
    "fairlead_placer": {
        "__main__": "wires the process",
        "service": "wires the core to the bus",
        "shell": "publishes desired state, listens to nodes, relays rank messages",
    },
}

#: {other package: its pure modules, with all below them}
CORES: dict[str, tuple[str, ...]] = {
    "fairlead_gateway": (
        "errors",
        "monitoring.readiness",
        "notify.allowed_hosts",
        "notify.rules",
        "routes.documents",
        "routes.job_translator",
        "routes.output_assembly",
        "views",
        "why",
    ),
    "fairlead_agent": (
        "core",
        "devices.labels",
        "devices.memory_guard",
        "devices.port",
        "devices.repartition",
        "devices.script",
        "devices.simulated_meters",
        "doctor.checks",
        "guard.policy",
        "hollow.outcomes",
        "launch.batch_variables",
        "launch.plan",
        "linux.counters",
        "node.health.checks",
        "node.health.fault_localization",
        "node.health.preflight",
        "node.health.finding_reports",
        "node.metrics.exposition",
        "runtimes.docker.ends",
        "runtimes.docker.fitness",
        "runtimes.docker.pulls",
        "runtimes.docker.template",
        "setup.layout",
    ),
    "fairlead_telemetry": (
        "idle",
        "queries.job_document",
        "queries.metric_steps",
        "samples.day_spans",
        "samples.intake",
        "schema",
        "sql.visibility",
        "usage.meter",
        "usage.prices",
        "usage.statement",
    ),
    "fairlead_replay": (
        "archive.checkpoints",
        "archive.merkle",
        "explainer.answers",
        "inventories",
        "lives",
        "recount",
        "virtual.figures",
        "virtual.load",
        "whatif.anonymous",
        "whatif.commands",
        "whatif.nodes",
        "whatif.survival",
    ),
}

#: {module (with all below it): (shells of services that it may use, why)}
SHELL_USERS: dict[str, tuple[tuple[str, ...], str]] = {
    "fairlead_replay.sim": (
        ("fairlead_placer.shell", "fairlead_telemetry.activity"),
        "the simulator runs the real shells on the in-memory bus, in virtual time",
    ),
    "fairlead_replay.past": (
        ("fairlead_gateway.access", "fairlead_gateway.server", "fairlead_gateway.service", "fairlead_gateway.sources"),
        "documents of the past are made by the gateway's own routes, so that they cannot differ from its answers",
    ),
    "fairlead_replay.past.kept_log": (
        (
            "fairlead_gateway.access",
            "fairlead_gateway.server",
            "fairlead_gateway.service",
            "fairlead_gateway.sources",
            "fairlead_telemetry.service",
            "fairlead_telemetry.warehouse",
        ),
        "a kept log is answered by the services' own code",
    ),
    "fairlead.commands.agent": (
        ("fairlead_agent.setup",),
        "`agent install` makes this very machine a node",
    ),
    "fairlead.commands.doctor": (
        ("fairlead_agent.doctor", "fairlead_agent.setup"),
        "`doctor` looks at this very machine",
    ),
    "fairlead.commands.storage": (
        ("fairlead_agent.launch.sync_tree",),
        "`datasets get` puts a directory together as nodes do",
    ),
    "fairlead.stack": (
        ("fairlead_agent.files",),
        "`up` and `doctor` show why an agent refuses that shares its process with others",
    ),
    "fairlead.commands.stack": (
        ("fairlead_agent.devices.profiles",),
        "`up` refuses a machine that cannot be played before it starts anything",
    ),
}

#: Modules of the bus that a core may import: what all cores share, without I/O.
BUS_FOR_CORES = ("fairlead_bus.core", "fairlead_bus.snapshot_codec", "fairlead_bus.undo_log")

#: {what a core may not import: what to do instead}
BANNED: dict[str, str] = {
    "asyncio": "return what should happen; the shell awaits",
    "concurrent": "return what should happen; the shell schedules",
    "threading": "return what should happen; the shell schedules",
    "multiprocessing": "return what should happen; the shell schedules",
    "time": "take now_ns as an argument",
    "random": "derive it from state, or take it as an argument",
    "secrets": "take it as an argument",
    "uuid": "take ids as arguments",
    "os": "take what you need as an argument; settings are read in __main__",
    "sys": "take what you need as an argument",
    "pathlib": "take contents, not paths",
    "shutil": "files belong to the shell",
    "tempfile": "files belong to the shell",
    "io": "take bytes",
    "socket": "the network belongs to the shell",
    "select": "the network belongs to the shell",
    "ssl": "the network belongs to the shell",
    "urllib": "the network belongs to the shell",
    "http": "the network belongs to the shell",
    "subprocess": "processes belong to the shell",
    "signal": "processes belong to the shell",
    "logging": "emit an event, or return a value that the shell logs",
    "structlog": "emit an event, or return a value that the shell logs",
    "nats": "use fairlead_bus from the shell",
    "uvloop": "the loop belongs to fairlead_bus.main",
    "httpx": "the network belongs to the shell",
    "docker": "containers belong to the agent's shell",
    "duckdb": "the warehouse belongs to telemetry's shell",
    "nanoarrow": "answers of the warehouse are spelled by telemetry's shell",
    "pynvml": "devices belong to the agent's shell",
    "fastapi": "HTTP belongs to the gateway's shell",
    "starlette": "HTTP belongs to the gateway's shell",
    "uvicorn": "HTTP belongs to the gateway's shell",
    "prometheus_client": "metrics belong to the shell",
    "yaml": "decode before the core",
    "typer": "the command line belongs to fairlead",
    "rich": "the command line belongs to fairlead",
}

#: {call a core may not make: what to do instead}, as written in the source.
BANNED_CALLS: dict[str, str] = {
    "open": "files belong to the shell",
    "input": "the terminal belongs to the command line",
    "print": "emit an event, or return a value",
    "datetime.now": "take now_ns as an argument",
    "datetime.utcnow": "take now_ns as an argument",
    "datetime.today": "take now_ns as an argument",
    "date.today": "take now_ns as an argument",
}

#: Where each package stands in the tree.
PACKAGES: dict[str, str] = {
    "fairlead_schemas": "schemas",
    "fairlead_bus": "bus",
    "fairlead_rights": "rights",
    "fairlead_gateway": "services/gateway",
    "fairlead_queue": "services/queue",
    "fairlead_placer": "services/placer",
    "fairlead_agent": "services/agent",
    "fairlead_telemetry": "services/telemetry",
    "fairlead_access": "services/access",
    "fairlead_storage": "services/storage",
    "fairlead_appproxy": "services/appproxy",
    "fairlead_replay": "replay",
    "fairlead": "cli",
}
SERVICES = (
    "fairlead_gateway",
    "fairlead_queue",
    "fairlead_placer",
    "fairlead_agent",
    "fairlead_telemetry",
    "fairlead_access",
    "fairlead_storage",
    "fairlead_appproxy",
)
