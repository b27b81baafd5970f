#include "match/path.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { SLASH = 1, END = 2, SLOW = 4, UPPER = 8, DOT = 16, NEWLINE = 32 };

/* The kind of each byte, for paths that may need no change at all. */
static const uint8_t kinds[256] = {
    ['/'] = SLASH, ['.'] = DOT,   ['\n'] = NEWLINE, ['?'] = END,   ['#'] = END,   ['%'] = SLOW,  [';'] = SLOW,
    ['A'] = UPPER, ['B'] = UPPER, ['C'] = UPPER,    ['D'] = UPPER, ['E'] = UPPER, ['F'] = UPPER, ['G'] = UPPER,
    ['H'] = UPPER, ['I'] = UPPER, ['J'] = UPPER,    ['K'] = UPPER, ['L'] = UPPER, ['M'] = UPPER, ['N'] = UPPER,
    ['O'] = UPPER, ['P'] = UPPER, ['Q'] = UPPER,    ['R'] = UPPER, ['S'] = UPPER, ['T'] = UPPER, ['U'] = UPPER,
    ['V'] = UPPER, ['W'] = UPPER, ['X'] = UPPER,    ['Y'] = UPPER, ['Z'] = UPPER,
};

/* A path on its way through is_plain. */
struct scan {
    size_t at;
    size_t slashes; /* as far as there is room in `start` */
    uint16_t *start;
};

#ifdef __SSE2__
enum { BLOCK = sizeof(__m128i) };

/* Marks for the bytes of a block, one bit for each byte. */
struct marks {
    unsigned slashes, dots;
    unsigned odd; /* to be looked at one by one */
};

static inline __m128i block_eq(__m128i block, char byte)
{
    return _mm_cmpeq_epi8(block, _mm_set1_epi8(byte));
}

static inline struct marks mark(__m128i block, bool ignore_case)
{
    __m128i odd = _mm_or_si128(_mm_or_si128(block_eq(block, '?'), block_eq(block, '#')),
                               _mm_or_si128(block_eq(block, '%'), block_eq(block, ';')));
    if (ignore_case)
        odd = _mm_or_si128(odd, _mm_and_si128(_mm_cmpgt_epi8(block, _mm_set1_epi8('A' - 1)),
                                              _mm_cmplt_epi8(block, _mm_set1_epi8('Z' + 1))));
    return (struct marks){
        .slashes = (unsigned)_mm_movemask_epi8(block_eq(block, '/')),
        .dots = (unsigned)_mm_movemask_epi8(block_eq(block, '.')),
        .odd = (unsigned)_mm_movemask_epi8(odd),
    };
}

/* Returns the marks of the block at offset `at`. Nothing is read outside `raw`: the last of several blocks overlaps the one
 * before. */
static inline struct marks marks_at(sv raw, size_t at, bool ignore_case)
{
    size_t left = raw.len - at;
    if (left >= BLOCK)
        return mark(_mm_loadu_si128((const __m128i *)(raw.ptr + at)), ignore_case);
    if (raw.len < BLOCK) {
        sv low = sv_of(raw.ptr, left < 8 ? left : 8);
        uint64_t high = left > 8 ? sv_word(raw.ptr + left - 8) >> 8 * (BLOCK - left) : 0;
        return mark(_mm_set_epi64x((long long)high, (long long)sv_short_word(low)), ignore_case);
    }
    struct marks marks = mark(_mm_loadu_si128((const __m128i *)(raw.ptr + raw.len - BLOCK)), ignore_case);
    return (struct marks){ marks.slashes >> (BLOCK - left), marks.dots >> (BLOCK - left), marks.odd >> (BLOCK - left) };
}

/* Block by block, up to one that needs a closer look or may have more slashes than there is room for. False: an empty
 * segment, or one that begins with a dot. */
static inline bool scan_blocks(struct scan *scan, sv raw, bool ignore_case)
{
    unsigned after_slash = 0;
    for (; scan->at < raw.len && scan->slashes <= PATH_SEGMENTS_MAX - BLOCK; scan->at += BLOCK) {
        struct marks marks = marks_at(raw, scan->at, ignore_case);
        if (marks.odd)
            break;
        if ((marks.slashes << 1 | after_slash) & (marks.slashes | marks.dots))
            return false;
        after_slash = marks.slashes >> (BLOCK - 1);
        for (unsigned left = marks.slashes; left; left &= left - 1)
            scan->start[scan->slashes++] = (uint16_t)(scan->at + (unsigned)__builtin_ctz(left) + 1);
    }
    return true;
}
#else
static inline bool scan_blocks(struct scan *scan, sv raw, bool ignore_case)
{
    (void)scan, (void)raw, (void)ignore_case;
    return true;
}
#endif

/* The same byte by byte, up to the query. False: there is something to change. */
static bool scan_bytes(struct scan *scan, sv raw, bool ignore_case)
{
    unsigned stop = SLASH | DOT | END | SLOW | (ignore_case ? UPPER : 0);
    for (; scan->at < raw.len; scan->at++) {
        unsigned kind = kinds[(unsigned char)raw.ptr[scan->at]] & stop;
        if (kind == 0)
            continue;
        if (kind == END)
            return true;
        if (kind & (SLOW | UPPER) || (scan->at > 0 && raw.ptr[scan->at - 1] == '/'))
            return false;
        if (kind == SLASH && scan->slashes <= PATH_SEGMENTS_MAX + 1)
            scan->start[scan->slashes++] = (uint16_t)(scan->at + 1);
    }
    return true;
}

/* Whether `raw` is fine as it is up to its query, as most paths are. *ret_len: its length up to there. */
static inline bool is_plain(sv raw, bool ignore_case, size_t *ret_len, struct path_segments *segments)
{
    struct scan scan = { .start = segments->start };
    if (raw.len == 0 || raw.ptr[0] != '/' || !scan_blocks(&scan, raw, ignore_case))
        return false;
    if (scan.at < raw.len && !scan_bytes(&scan, raw, ignore_case))
        return false;
    size_t len = scan.at < raw.len ? scan.at : raw.len;
    if (len > 1 && (raw.ptr[len - 1] == '/' || raw.ptr[len - 1] == '\n'))
        return false;
    if (scan.slashes <= PATH_SEGMENTS_MAX + 1)
        segments->start[scan.slashes] = (uint16_t)(len + 1);
    segments->count = len == 1 ? 0 : (uint32_t)(scan.slashes > PATH_SEGMENTS_MAX ? PATH_SEGMENTS_MAX + 1 : scan.slashes);
    *ret_len = len;
    return true;
}

/* The byte that "%xx" at offset `at` stands for, or -1. */
static inline int escape_at(sv s, size_t at)
{
    if (s.ptr[at] != '%' || s.len - at < 3)
        return -1;
    int high = ascii_hex(s.ptr[at + 1]), low = ascii_hex(s.ptr[at + 2]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* Where a segment is written to. */
struct piece {
    char *out;
    size_t len, cap; /* at most `cap` bytes are written, all are counted */
};

static inline void piece_add(struct piece *piece, char c)
{
    if (piece->len < piece->cap)
        piece->out[piece->len] = c;
    piece->len++;
}

static inline void piece_add_all(struct piece *piece, sv text, bool ignore_case)
{
    size_t room = piece->len < piece->cap ? piece->cap - piece->len : 0, n = text.len < room ? text.len : room;
    char *to = piece->out + piece->len;
    for (size_t i = 0; !ignore_case && i < n; i++)
        to[i] = text.ptr[i];
    for (size_t i = 0; ignore_case && i < n; i++)
        to[i] = ascii_lower(text.ptr[i]);
    piece->len += text.len;
}

/* Decodes one segment. Returns what it notes; where a `;` ends the segment, what follows is noted and not written. */
static inline unsigned decode_segment(sv raw, bool ignore_case, bool cut_params, struct piece *piece)
{
    static const char digits[] = "0123456789ABCDEF";
    unsigned notes = 0;
    bool at_start = true, ended = false;
    for (size_t i = 0; i < raw.len; i++) {
        size_t from = i;
        while (i < raw.len && !(kinds[(unsigned char)raw.ptr[i]] & (SLOW | DOT | NEWLINE)))
            i++;
        if (i > from) {
            at_start = false;
            if (!ended)
                piece_add_all(piece, sv_of(raw.ptr + from, i - from), ignore_case);
            if (i == raw.len)
                break;
        }
        int byte = escape_at(raw, i);
        char c = byte >= 0 ? (char)byte : raw.ptr[i];
        bool stays_encoded = byte >= 0 && (c == '/' || c == '%' || c == '\0');
        if (byte >= 0)
            i += 2;
        if (c == '.' && at_start)
            notes |= PATH_HAS_DOTS;
        if (c == '\n')
            notes |= PATH_HAS_NEWLINE;
        if (c == ';') {
            notes |= PATH_HAS_PARAMS;
            ended = ended || cut_params;
        }
        at_start = c == '/';
        if (at_start)
            notes |= PATH_HAS_SLASH;
        if (ended)
            continue;
        if (!stays_encoded) {
            piece_add(piece, ignore_case ? ascii_lower(c) : c);
            continue;
        }
        piece_add(piece, '%');
        piece_add(piece, digits[byte >> 4]);
        piece_add(piece, digits[byte & 15]);
    }
    return notes;
}

/* One that is decoded already, up to its `;`. */
static void copy_segment(sv raw, struct piece *piece)
{
    raw = sv_cut(&raw, ';');
    piece_add_all(piece, raw, false);
}

size_t path_segment(sv raw, bool ignore_case, char *out, size_t cap)
{
    struct piece piece = { out, 0, cap };
    decode_segment(raw, ignore_case, true, &piece);
    return piece.len;
}

/* "http://host/path": what is behind the host. */
static sv cut_authority(sv raw)
{
    size_t i = 0;
    while (i < raw.len &&
           (ascii_hex(raw.ptr[i]) >= 0 || (ascii_lower(raw.ptr[i]) >= 'g' && ascii_lower(raw.ptr[i]) <= 'z') ||
            (i > 0 && memchr("+-.", raw.ptr[i], 3))))
        i++;
    if (i == 0 || ascii_digit(raw.ptr[0]) || !sv_starts(sv_from(raw, i), SV("://")))
        return raw;
    sv rest = sv_from(raw, i + 3);
    return sv_from(rest, sv_cut(&(sv){ rest.ptr, rest.len }, '/').len); /* from the slash on */
}

/* hash: a `#` is not the end. */
static sv cut_query(sv raw, bool hash)
{
    for (size_t i = 0; i < raw.len; i++)
        if (kinds[(unsigned char)raw.ptr[i]] == END && !(hash && raw.ptr[i] == '#'))
            return sv_of(raw.ptr, i);
    return raw;
}

/* A path under way. Segments behind the place where `out` is full are only counted, so that a `..` among them takes back
 * the right one: nobody hides a path behind one that is too long. An empty segment that counts is a slash of its own. */
struct writer {
    char *out;
    size_t len, cap;
    size_t beyond;   /* segments that did not fit, the one that was cut included */
    size_t cut_from; /* where that one begins */
    struct path_way way;
    bool ignore_case;
    bool decoded; /* what it gets is that already */
    bool open;    /* a slash is at the end, which is not written */
    unsigned notes;
};

static void leave_segment(struct writer *w)
{
    if (w->beyond > 1) {
        w->beyond--;
        return;
    }
    if (w->beyond == 1) {
        w->beyond = 0;
        w->len = w->cut_from;
        return;
    }
    while (w->len > 0 && w->out[--w->len] != '/')
        ;
}

/* Decodes a segment and puts it behind the others, or does what a dot segment says. */
static inline void add_segment(struct writer *w, sv raw)
{
    /* Where there is no room to decode it, its first bytes tell whether it is a dot segment. */
    char head[3];
    size_t room = w->beyond ? 0 : w->cap - w->len;
    bool fits = room > sizeof head;
    char *to = fits ? w->out + w->len + 1 : head;
    struct piece piece = { to, 0, fits ? room - 1 : sizeof head };
    if (w->decoded)
        copy_segment(raw, &piece);
    else
        w->notes |= decode_segment(raw, w->ignore_case, w->way.params == PARAMS_CUT, &piece);
    size_t length = piece.len;
    w->open = true;
    if (length == 0) {
        w->notes |= PATH_HAS_GAPS;
        if (w->way.dots != DOTS_BEFORE_SLASHES)
            return;
    }
    if (length == 1 && to[0] == '.')
        return;
    if (length == 2 && to[0] == '.' && to[1] == '.') {
        leave_segment(w);
        return;
    }
    w->open = false;
    if (w->beyond || length + 1 > room) {
        if (!w->beyond++)
            w->cut_from = w->len;
        length = room ? room - 1 : 0;
        if (length == 0)
            return;
    }
    w->out[w->len] = '/';
    if (!fits)
        memcpy(w->out + w->len + 1, head, length);
    w->len += length + 1;
}

/* Where "%2F" stands at or after `from`; the length of `raw` if nowhere. */
static size_t find_encoded_slash(sv raw, size_t from)
{
    while (from < raw.len && escape_at(raw, from) != '/')
        from++;
    return from;
}

/* Adds the text between two slashes of the request, which some servers read as several segments. */
static __attribute__((noinline)) void add_raw_segment(struct writer *w, sv raw)
{
    if (w->way.params == PARAMS_CUT_RAW)
        raw = sv_cut(&raw, ';');
    for (size_t at; w->way.slash && (at = find_encoded_slash(raw, 0)) < raw.len; raw = sv_from(raw, at + 3))
        add_segment(w, sv_of(raw.ptr, at));
    add_segment(w, raw);
}

/* Takes out the empty segments that were kept for `..`. */
static void merge_slashes(struct writer *w)
{
    size_t len = 0;
    w->open = w->open || (w->len > 0 && w->out[w->len - 1] == '/');
    for (size_t i = 0; i < w->len; i++)
        if (w->out[i] != '/' || (i + 1 < w->len && w->out[i + 1] != '/'))
            w->out[len++] = w->out[i];
    w->len = len;
}

void path_split(sv path, struct path_segments *ret)
{
    ret->count = 0;
    size_t at = path.len > 0 && path.ptr[0] == '/';
    ret->start[0] = (uint16_t)at;
    while (at < path.len && ret->count <= PATH_SEGMENTS_MAX) {
        const char *slash = memchr(path.ptr + at, '/', path.len - at);
        at = slash ? (size_t)(slash - path.ptr) + 1 : path.len + 1;
        ret->start[++ret->count] = (uint16_t)at;
    }
}

/* Writes what is neither query nor authority. */
static void write_path(struct writer *w, sv rest)
{
    if (rest.len > 0 && rest.ptr[0] == '/')
        rest = sv_from(rest, 1);
    bool slash_at_end = rest.len > 0 && rest.ptr[rest.len - 1] == '/';
    if (w->way.slash || w->way.params == PARAMS_CUT_RAW)
        while (rest.len > 0)
            add_raw_segment(w, sv_cut(&rest, '/'));
    while (rest.len > 0)
        add_segment(w, sv_cut(&rest, '/'));
    w->open = w->open || slash_at_end;
    if (w->open)
        w->notes |= PATH_HAS_GAPS;
    if (w->beyond > 0)
        w->notes |= PATH_CUT;
}

/* Writes the slash at the end if it is to be kept. */
static void end_path(struct writer *w)
{
    if (!w->open || w->way.gaps == GAPS_DROPPED || w->notes & PATH_CUT)
        return;
    if (w->len < w->cap)
        w->out[w->len++] = '/';
    else
        w->notes |= PATH_CUT;
}

/* Two servers, one behind the other: the first knows no parameters, and hands on what is left when it has resolved dots. Of
 * a path that is too long for it nothing is known. */
static __attribute__((noinline)) void write_twice(struct writer *w, sv rest)
{
    char between[PATH_BYTES_MAX];
    struct writer first = { .out = between, .cap = sizeof between, .way = w->way, .ignore_case = w->ignore_case };
    first.way.params = PARAMS_KEPT;
    write_path(&first, rest);
    end_path(&first);
    w->way.params = PARAMS_CUT;
    w->way.slash = false;
    w->decoded = true;
    w->notes |= first.notes;
    if (!(first.notes & PATH_CUT))
        write_path(w, sv_of(between, first.len));
}

/* Notes are added to *notes. */
static sv rewrite(sv raw, struct path_way way, bool ignore_case, char *out, size_t cap, unsigned *notes)
{
    sv rest = cut_query(raw, way.hash);
    if (rest.len < raw.len && rest.ptr[rest.len] == '#')
        *notes |= PATH_HAS_HASH;
    if (sv_eq(rest, SV("*")))
        return rest;
    struct writer w = { .out = out, .cap = cap, .way = way, .ignore_case = ignore_case };
    (way.params == PARAMS_CUT_LAST ? write_twice : write_path)(&w, cut_authority(rest));
    if (way.dots == DOTS_BEFORE_SLASHES && way.gaps != GAPS_KEPT)
        merge_slashes(&w);
    end_path(&w);
    if (w.len == 0)
        out[w.len++] = '/';
    *notes |= w.notes;
    return sv_of(out, w.len);
}

sv path_normalise(sv raw, bool ignore_case, char *out, size_t cap, unsigned *ret_notes, struct path_segments *ret_segments)
{
    size_t len;
    sv path;
    *ret_notes = 0;
    if (!is_plain(raw, ignore_case, &len, ret_segments)) {
        path = rewrite(raw, (struct path_way){ 0 }, ignore_case, out, cap, ret_notes);
    } else if (len <= cap) {
        if (len < raw.len && raw.ptr[len] == '#')
            *ret_notes = PATH_HAS_HASH;
        return sv_of(raw.ptr, len);
    } else {
        *ret_notes = PATH_CUT | (len < raw.len && raw.ptr[len] == '#' ? PATH_HAS_HASH : 0);
        path = sv_of(raw.ptr, cap > 1 && raw.ptr[cap - 1] == '/' ? cap - 1 : cap);
    }
    path_split(path, ret_segments);
    return path;
}

struct path_reading path_read(sv raw, struct path_way way, bool ignore_case, char *out, size_t cap)
{
    unsigned notes = 0;
    sv path = rewrite(raw, way, ignore_case, out, cap, &notes);
    return (struct path_reading){ path, notes & PATH_CUT };
}

/* Adds a reading unless there is one like it. Returns its number. */
static size_t add_reading(struct path_reading *readings, size_t *count, struct path_reading reading)
{
    for (size_t i = 0; i < *count; i++)
        if (readings[i].cut == reading.cut && sv_eq(readings[i].path, reading.path))
            return i;
    readings[*count] = reading;
    return (*count)++;
}

static bool ends_in_newline(struct path_reading reading)
{
    return !reading.cut && reading.path.len >= 2 && reading.path.ptr[reading.path.len - 1] == '\n';
}

/* How many answers each question has for a path, and how many ways to read it that makes. */
struct path_choice {
    unsigned params, slashes, dots, hashes, ways;
};

static struct path_choice choose_ways(sv raw, unsigned notes, bool ignore_case, char pool[PATH_POOL_BYTES])
{
    struct path_choice c = { .hashes = notes & PATH_HAS_HASH ? 2 : 1 };
    if (c.hashes > 1) /* the bytes after it were not looked at */
        rewrite(raw, (struct path_way){ .hash = true }, ignore_case, pool, PATH_BYTES_MAX, &notes);
    c.params = notes & PATH_HAS_PARAMS ? PATH_PARAMS : 1;
    c.slashes = notes & PATH_HAS_SLASH ? 2 : 1;
    c.dots = notes & PATH_HAS_DOTS ? PATH_DOTS : 1;
    c.ways = c.params * c.slashes * c.dots * c.hashes;
    return c;
}

static struct path_way way_at(const struct path_choice *c, unsigned i)
{
    return (struct path_way){
        .params = i % c->params,
        .slash = i / c->params % c->slashes,
        .dots = i / c->params / c->slashes % c->dots,
        .hash = i / c->params / c->slashes / c->dots,
    };
}

size_t path_readings(sv raw, unsigned notes, bool ignore_case, char pool[PATH_POOL_BYTES],
                     struct path_reading ret[PATH_READINGS_MAX], struct path_numbers *ret_numbers)
{
    struct path_choice choice = choose_ways(raw, notes, ignore_case, pool);
    size_t cap = PATH_POOL_BYTES / choice.ways < PATH_BYTES_MAX ? PATH_POOL_BYTES / choice.ways : PATH_BYTES_MAX;
    size_t count = 0;
    for (unsigned i = 0; i < choice.ways; i++) {
        struct path_reading reading = path_read(raw, way_at(&choice, i), ignore_case, pool, cap);
        size_t before = count, number = add_reading(ret, &count, reading);
        pool += count > before ? cap : 0;
        ret_numbers->whole[i] = ret_numbers->bare[i] = (uint8_t)number;
        if (!ends_in_newline(reading))
            continue;
        /* Without it, and without the slash that is then the last. */
        sv path = reading.path;
        path.len--;
        path.len -= path.len > 1 && path.ptr[path.len - 1] == '/';
        ret_numbers->bare[i] = (uint8_t)add_reading(ret, &count, (struct path_reading){ path, false });
    }
    return count;
}

/* Adds a text unless there is one like it, or it is its own reading. */
static size_t add_text(struct path_text *texts, size_t count, struct path_reading as, uint8_t reading)
{
    bool slash_at_end = as.path.len > 1 && as.path.ptr[as.path.len - 1] == '/';
    if (!as.cut && !slash_at_end && !memmem(as.path.ptr, as.path.len, "//", 2))
        return count;
    for (size_t i = 0; i < count; i++)
        if (texts[i].reading == reading && texts[i].as.cut == as.cut && sv_eq(texts[i].as.path, as.path))
            return count;
    texts[count] = (struct path_text){ as, reading };
    return count + 1;
}

size_t path_texts(sv raw, unsigned notes, bool ignore_case, const struct path_numbers *numbers, char pool[PATH_POOL_BYTES],
                  struct path_text ret[PATH_TEXTS_MAX])
{
    struct path_choice choice = choose_ways(raw, notes, ignore_case, pool);
    /* A path without dots reads the same whenever they are resolved, so each of its ways has both texts. */
    unsigned kept_from = choice.dots > 1 ? DOTS_BEFORE_SLASHES : DOTS_AFTER_SLASHES;
    size_t left = choice.ways + choice.ways / choice.dots, room = PATH_POOL_BYTES, count = 0;
    for (unsigned i = 0; i < choice.ways; i++) {
        struct path_way way = way_at(&choice, i);
        unsigned last = way.dots >= kept_from ? GAPS_KEPT : GAPS_AT_END;
        for (unsigned gaps = GAPS_AT_END; gaps <= last; gaps++, left--) {
            size_t cap = room / left < PATH_BYTES_MAX ? room / left : PATH_BYTES_MAX, before = count;
            unsigned found = 0;
            way.gaps = gaps;
            way.dots = gaps == GAPS_KEPT ? DOTS_BEFORE_SLASHES : way.dots;
            sv path = rewrite(raw, way, ignore_case, pool, cap, &found);
            struct path_reading as = { path, found & PATH_CUT };
            if (found & PATH_HAS_GAPS)
                count = add_text(ret, count, as, numbers->whole[i]);
            if (ends_in_newline(as)) {
                as.path.len--;
                count = add_text(ret, count, as, numbers->bare[i]);
            }
            size_t used = count > before ? path.len : 0;
            pool += used;
            room -= used;
        }
    }
    return count;
}

bool path_segment_is_id(sv segment)
{
    enum { UUID_LENGTH = 36 };
    size_t digits = 0;
    while (digits < segment.len && ascii_digit(segment.ptr[digits]))
        digits++;
    if (digits == segment.len)
        return digits > 0;
    if (segment.len != UUID_LENGTH)
        return false;
    for (size_t i = 0; i < UUID_LENGTH; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? segment.ptr[i] != '-' : ascii_hex(segment.ptr[i]) < 0)
            return false;
    }
    return true;
}

bool path_segment_begins_id(sv begin)
{
    /* The rest of a UUID, whose form does not depend on its digits. */
    static const char rest[] = "00000000-0000-0000-0000-000000000000";
    char whole[sizeof rest];
    size_t digits = 0;
    while (digits < begin.len && ascii_digit(begin.ptr[digits]))
        digits++;
    if (digits == begin.len)
        return true;
    if (begin.len >= sizeof rest)
        return false;
    memcpy(whole, rest, sizeof rest);
    memcpy(whole, begin.ptr, begin.len);
    return path_segment_is_id(sv_of(whole, sizeof rest - 1));
}
