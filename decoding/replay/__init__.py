"""The replay page: one or two traces as one self-contained HTML file.

    record     a Generation -> the plain data that the page is fed
    page       that data, page.html, page.css and the scripts -> one file
    *.js       response (what each position holds after each pass), blocks, posterior (its drawing), stage (one run),
               card (what is said of one token), page (controls)

Texts are data: they reach the page as JSON and its document as text nodes, never as markup.
"""

from .page import replay_page

__all__ = ["replay_page"]
