"""The rollout wing: scheduler, generators, rewards, filters, the buffer and the core's own data source.

Tasks:
    file_data.py (with file_images.py), recycled.py: what comes back

Groups in flight:
    groups.py        the rollout that submits them; tickets.py, making.py, patience.py, together.py, kept.py
    sync_schedule.py, one_step_off.py, async_schedule.py, limits.py; adaptive_schedule.py, controller.py

One attempt:
    attempts.py      calls a generator, and tells its failures apart
    single_turn.py, tool_loop.py with python_tools.py, agent.py with command_agent.py, demonstration.py
    sequence_builder.py what was sampled becomes one row
    fleet.py         several engines behind one client

Judged, and waiting:
    scoring.py       match_reward.py, function_reward.py, agent_reward.py
    fifo_buffer.py   order.py, passage.py: in which order, and what passed; unequal_rewards.py filters
    staleness.py     what is too old
    saved.py         a rollout that gives the trajectories of an earlier run

Middleware: limit.py, trace.py.
"""
