"""Cells that await: they share one event loop, which lasts as long as the kernel."""

import asyncio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel


def adopt():
    """Make the kernel's loop the current one again (asyncio.run takes it away)."""
    if kernel.loop is None or kernel.loop.is_closed():
        kernel.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(kernel.loop)
    return kernel.loop


async def steps_of(codes):
    value = None
    for code in codes:
        value = eval(code, kernel.ns)
        if code.co_flags & 0x80:
            value = await value
    return value


def drive(codes):
    """Run the parts of a cell inside the loop; return the value of the last one.

    Tasks that the cell started and did not await go on with the next cell that
    awaits. An interrupt cancels the cell and leaves them alone.
    """
    loop = adopt()
    task = loop.create_task(steps_of(codes))
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except BaseException:
                pass  # what stopped the cell is already on its way up
        elif not task.cancelled():
            task.exception()  # seen, so that asyncio does not complain about it
        raise
