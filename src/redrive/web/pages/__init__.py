"""The dashboard: pages that show how the system is, and forms that mend it.

A request passes, in this order:

site        who asks, is a form one of ours, what is answered      `site.py`
table       which address is which view, and what it needs         `table.py`
view        the operations, and what they say as plain data        a module for each subject
template    that data as HTML, everything escaped                  `templates/`, `rendering.py`

A view returns a `Page` whose model knows nothing of HTML. A new page is a function, a template, and
a row of the table.
"""
