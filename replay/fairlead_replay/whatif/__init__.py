"""What-if: a recorded log played again by the production cores, under the recorded policy or another one.

    record.py      what a log says was given: submits, cancels, settings, facts of nodes; and what was real
    commands.py    the commands that events answer
    stimuli.py     what was given, given anew: at its time, or after what it followed; ids mapped
    lengths.py     how long each job runs and how it ends, from its recorded attempts
    survival.py    lengths that the log does not have, drawn from those that it has
    nodes.py       played nodes: they follow the placer's derived orders, and report
    player.py      the engine: both cores over an imagined log, from moment to moment
    replays.py     a recording played under conditions: changes, a seed, people who follow their own ends
    fidelity.py    how near a play of the recorded policy comes to the record, and its grade

docs/adr/0026-what-is-given-and-what-is-decided.md says why each thing is given or decided. `virtual` is the case of
this engine whose stimuli are the submits of a trace.
"""
