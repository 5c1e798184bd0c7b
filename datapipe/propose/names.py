"""
What names of fields suggest.  A name is compared by its last part, in lower case, without `_`, `-` and blanks.

They only suggest: judge.py asks what the values say, too.
"""

import re
from collections.abc import Container, Sequence


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TEXTS = _words(
    """
    text content contents rawcontent rawtext textcontent fulltext maintext plaintext extractedtext cleantext
    cleanedtext body bodytext document article articlebody articletext markdown md pagecontent pagetext pagebody
    maincontent transcript selftext story doctext
    """
)
CODES = _words(
    """
    code sourcecode sourcefile program
    """
)
# what an evaluation set or a set of dialogues asks
ASKED = _words(
    """
    question query prompt problem instruction input goal questionstem stem task request questiontext
    """
)
# what stands beside it
BESIDE = _words(
    """
    context passage premise sentence support paragraph abstract summary description comment message post output
    response completion answer rationale solution explanation
    """
)
HTML = _words(
    """
    html rawhtml htmlcontent xml
    """
)
NEVER_TEXT = _words(
    """
    url uri link path filename license licence id source lang language date domain family group title name
    author
    """
)
IDS = _words(
    """
    id docid documentid uid uuid guid recordid nativeid articleid pageid taskid qid questionid queryid exampleid
    sampleid itemid postid commentid pid sid key identifier doi warcrecordid blobid paperid arxivid pmid idx
    index
    """
)
URLS = _words(
    """
    url uri link permalink sourceurl docurl pageurl targeturi warctargeturi canonicalurl href
    """
)
DATES = _words(
    """
    date datetime timestamp crawltime crawldate crawled crawledat crawltimestamp fetchtime fetched fetchedat
    fetchdate captured capturedat capturetime warcdate retrieved retrievedat datedownload downloaded published
    publishedat publishdate publisheddate publicationdate pubdate datepublished created createdat createddate
    creationdate createdutc datecreated posted postedat added time updated updatedat modified modifiedat
    lastmodified lastmod year
    """
)
LANGS = _words(
    """
    lang language langcode languagecode langid locale languageid programminglanguage proglang
    """
)
GROUPS = _words(
    """
    group family pagefamily groupid cluster clusterid domain host hostname site website repo reponame repository
    repositoryname project package book bookid thread threadid conversationid articleid pageid parentid author
    """
)
VERSIONS = _words(
    """
    version revision revisionid rev revid commit commitid capture
    """
)
SNAPSHOTS = _words(
    """
    snapshot snapshotid dump dumpname crawl crawlid ccdump release warcdump
    """
)
PATHS = _words(
    """
    path filename filepath file maxstarsrepopath
    """
)
LICENCES = _words(
    """
    license licence licensetype detectedlicenses
    """
)
SCORE = re.compile(
    r"score|prob|quality|rating|perplexity|\bppl\b|toxic|stars?$|votes?$|likes?$|confidence|ratio$|nsfw", re.IGNORECASE
)

LANGUAGES_OF_CODE = frozenset(
    _words(
        """
    python java javascript typescript c cpp c++ c# csharp cuda go golang rust ruby php perl haskell scala kotlin
    swift shell bash powershell sql html css lua r julia dart ocaml erlang elixir clojure fortran ada assembly
    makefile dockerfile cmake verilog vhdl matlab groovy lisp scheme prolog objective-c pascal solidity tex vue
    zig jsx tsx
    """
    )
)
SUFFIXES_OF_CODE = frozenset(
    _words(
        """
    .py .pyx .pyi .c .h .cc .cpp .cxx .hpp .hh .java .js .mjs .ts .tsx .jsx .go .rs .rb .php .pl .pm .hs .scala
    .kt .swift .sh .bash .ps1 .sql .css .scss .lua .r .jl .dart .ml .mli .erl .ex .exs .clj .f .f90 .asm .s .v
    .vhd .m .groovy .lisp .el .scm .cs .cu .vue .zig .cmake .sol
    """
    )
)
SUFFIXES_OF_PROSE = frozenset(
    _words(
        """
    .txt .text .md .markdown .rst .html .htm .xhtml .tex .org .adoc .log .wiki
    """
    )
)
ENGLISH = frozenset(("en", "eng", "english"))


def bare(name: str) -> str:
    """The last part of a dotted name, as names are compared here."""
    return re.sub(r"[\W_]", "", name.rpartition(".")[2]).casefold()


def rank(name: str, names: Sequence[str]) -> int | None:
    """The place of a name in a list, null where it is not there."""
    key = bare(name)
    return names.index(key) if key in names else None


def depth(name: str, known: Container[str]) -> int:
    """How many levels down a field lies; a column may have a dot in its name."""
    return name.count(".") if name.rpartition(".")[0] in known else 0
