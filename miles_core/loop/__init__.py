"""The ring: `assemble` joins host and ring once, `driver` goes round.

From the call to the ring and back:
    api.py           `run`, `resume`, `export`: the folder, the plan, how it ended
    preflight.py     what can be refused before any work; shape.py: what a factory made against its contract
    recovery.py      a ring until the run is done, and back to its checkpoint (rewinding.py) when it lost what it needs
    assemble.py      names to objects; layers.py: middleware around them; sessions.py: the session server
    ring.py          the living parts; driver.py: round and round; account.py, batch.py: what is owed and trained on
    checkpoint.py    what resuming needs, all or nothing
    interruptible.py how Ctrl-C ends it; hosted.py, order.py, supervise.py: the driver in a worker

Engines' lives:
    keeper.py        the one owner of a fleet's engines; care.py, health.py: what it knows of each, whether it is well
    weight_sources.py where a restarted engine gets its weights

Schedules that watch themselves:
    occupancy.py     how busy the slots are; adapting.py: hands that to a schedule that may change

Evaluation:
    due.py           which is due; evaluating.py: begin, settle, finish; measuring.py: one of them, with its limit
    evaluation.py    on held-out tasks; evaluation_fleet.py: on engines of its own
    command_evaluation.py a program's: program.py, leash.py run it, told_scores.py reads it, exports.py has its weights
    filing.py        a score under its version; evaluate.py: `miles eval`

On record, and proven:
    record.py        metrics, events, trajectories, listeners; measures.py, trackers.py, summary.py, traces.py
    audit.py         nothing lost or twice; evidence.py: read back; proof.py: against ledger and digests; mended.py
    plugin_set.py    the lock
    serve.py         `miles session serve`
"""
