"""
The names of signals and what they mean, for manifests to bound: datapipe.signals.SIGNALS has the functions.

Written here too, for a manifest must load without numba and pyarrow.
"""

from collections.abc import Mapping

SIGNALS: Mapping[str, str] = {
    # words and lines
    "word_count": "words",
    "unit_count": "units",
    "mean_word_length": "code points of a word, on average",
    "alpha_ratio": "share of words with a letter",
    "max_word_length": "code points of the longest word",
    "non_symbol_word_count": "words that are not all punctuation",
    "mean_non_symbol_word_length": "code points of such a word, on average",
    "english_stop_words": "how many of the, be, to, of, and, that, have, with are among the words",
    "hash_ratio": "# signs by words",
    "ellipsis_ratio": "ellipses (... and …) by words",
    "bullet_line_ratio": "share of lines (of str.splitlines, blank ones too) that start with • or -",
    "ellipsis_line_ratio": "share of those lines that end with ... or …",
    "line_punct_ratio": "share of lines that end with a terminal mark, of those that are not blank",
    "short_line_ratio": "share of lines of at most 30 code points, of those that are not blank",
    "list_ratio": "newlines by words",
    "third_line_length": "code points of the third longest line",
    "sentence_count": "sentences",
    "lorem_ipsum_lines": "lines (of str.splitlines) that hold lorem ipsum in whatever case",
    "curly_bracket_lines": "lines of that kind that hold {",
    "lorem_ipsum_first": "1 where a line of the former comes before all others of the latter, else 0",
    "c4_long_word_lines": "lines that the edit c4_lines takes for a word of more than 1,000 code points",
    "c4_no_terminal_lines": "lines, not blank, that it takes because they end with no . ? ! \" ' or with three dots",
    "c4_few_word_lines": "lines, not blank, that it takes for fewer than three words",
    "c4_javascript_lines": "lines that it takes for javascript",
    "c4_policy_lines": "lines that it takes for words of a policy, such as terms of use",
    # characters
    "char_count": "code points",
    "letter_count": "letters",
    "latin_letter_count": "letters of the Latin script",
    "letter_ratio": "letters by code points that are not white space",
    "unit_char_ratio": "code points that units are made of, by those that are not white space",
    "digit_ratio": "digits and other numbers that are no letters, by code points that are not white space",
    "punctuation_ratio": "punctuation by code points that are not white space",
    "alnum_ratio": "letters and numbers by code points",
    "newline_char_ratio": "newlines by code points",
    "replacement_ratio": "U+FFFD by code points",
    "control_ratio": "controls other than tab, newline, carriage return, by code points",
    "mean_line_length": "code points of a line, on average, blank lines too",
    "max_line_length": "code points of the longest line",
    "mean_unit_length": "code points of a unit, on average",
    "hash_unit_ratio": "# signs by units",
    "ellipsis_unit_ratio": "ellipses (... and …) by units",
    # code
    "auto_generated": "phrases such as auto-generated in the first five lines",
    "encoded_ratio": "code points in base64, hexadecimal bytes and \\u escapes, by code points",
    "encoded_longest": "code points of the longest run of base64, hexadecimal bytes or \\u escapes",
    # repetition
    "dup_para_frac": "share of paragraphs seen before in the text",
    "dup_para_char_frac": "their code points, by those of the text",
    "dup_line_frac": "share of lines seen before, whatever number of newlines lies between",
    "dup_line_char_frac": "their code points, by those of the text",
    **{
        f"top_{n}gram_char_frac": f"code points of the most frequent run of {n} words, times its count, by the text's"
        for n in (2, 3, 4)
    },
    **{
        f"dup_{n}gram_char_frac": f"code points in runs of {n} words seen before, by those of the text"
        for n in range(5, 11)
    },
    "char_dup_ratio": "code points of lines seen before that are not blank, by those of the text without newlines",
    **{
        f"top_{n}gram_unit_frac": f"share of units in the most frequent run of {n}, 0 where none comes twice"
        for n in (2, 3, 4)
    },
    **{f"dup_{n}gram_unit_frac": f"share of units in runs of {n} seen before" for n in range(5, 11)},
    "distinct_unit_ratio": "distinct units by units",
}
