"""A fork waits for an import of another thread, whose lock the child would wait for in vain."""

from __future__ import annotations

import os
import threading

from redrive.app.importing import unforked


def test_no_fork_comes_into_an_import_of_another_thread() -> None:
    begun, asked, done = threading.Event(), threading.Event(), threading.Event()
    end = threading.Event()
    order: list[str] = []

    def take_long() -> None:
        with unforked():
            begun.set()
            end.wait()
            order.append("imported")

    def fork() -> None:
        begun.wait()
        child = os.fork()
        if not child:
            with unforked():  # as anybody may there
                os._exit(0)
        order.append("forked")
        os.waitpid(child, 0)
        done.set()

    os.register_at_fork(before=asked.set)  # what comes last is called first
    threads = [threading.Thread(target=one, daemon=True) for one in (take_long, fork)]
    for one in threads:
        one.start()

    assert asked.wait(30)
    assert order == []
    end.set()

    assert done.wait(30)
    assert order == ["imported", "forked"]
