#include "rules/descriptor.h"

#include <stdio.h>

#include "base/sha256.h"

/* Beside `%` and `,`, the byte that is escaped in a name, and in a text of all entries. */
enum { IN_NAME = '#', IN_TEXT = '=' };
enum {
    NUMBER_MAX = 8, /* bytes of "#256" */
    PLAIN_MAX = 8,  /* entries of a plain descriptor */
};
_Static_assert(PLAIN_MAX *(DESCRIPTOR_KEY_MAX + 1) <= DESCRIPTOR_TEXT_MAX, "the keys of a plain descriptor have room");

static size_t entry_count(const struct weir_request *request)
{
    return request->descriptor_count < WEIR_DESCRIPTOR_MAX ? request->descriptor_count : WEIR_DESCRIPTOR_MAX;
}

static bool is_escaped(char c, char mark)
{
    return c == '%' || c == ',' || c == mark;
}

/* "%2C" */
static size_t put_escaped(char *to, char c)
{
    static const char digits[] = "0123456789ABCDEF";
    to[0] = '%';
    to[1] = digits[(unsigned char)c >> 4];
    to[2] = digits[c & 15];
    return 3;
}

/* The byte that "%XX" stands for at the beginning of a text; 0: not one that is escaped. */
static char unescape(sv text, char mark)
{
    const char bytes[] = { '%', ',', mark };
    for (size_t i = 0; text.len >= 3 && i < sizeof bytes; i++) {
        char code[3];
        put_escaped(code, bytes[i]);
        if (sv_eq_nocase(sv_of(text.ptr, 3), sv_of(code, 3)))
            return bytes[i];
    }
    return 0;
}

/* ---- names ---- */

/* Where the number of a name begins, at its `#`. */
static size_t key_length(sv name)
{
    const char *mark = name.len ? memchr(name.ptr, '#', name.len) : NULL;
    return mark ? (size_t)(mark - name.ptr) : name.len;
}

/* 1 unless the name has a number. 0: not a number that a name can have. */
static uint64_t number_of(sv name)
{
    size_t len = key_length(name);
    uint64_t number = 1;
    if (len == name.len)
        return 1;
    sv digits = sv_from(name, len + 1);
    bool good = sv_u64(digits, WEIR_DESCRIPTOR_MAX, &number) && number >= 2 && digits.ptr[0] != '0';
    return good ? number : 0;
}

bool descriptor_name_read(sv text, char *to, sv *ret, const char **ret_allowed)
{
    size_t key_len = key_length(text), len = 0;
    *ret_allowed = NULL;
    for (size_t i = 0; i < key_len && !*ret_allowed; i++) {
        char c = text.ptr[i], meant = c == '%' ? unescape(sv_of(text.ptr + i, key_len - i), IN_NAME) : 0;
        if (c == '%' && !meant)
            *ret_allowed = "a `%` in the key of an entry is written %25";
        i += meant ? 2 : 0;
        if (meant || c == ',')
            len += put_escaped(to + len, meant ? meant : c);
        else
            to[len++] = c;
    }
    if (!*ret_allowed && number_of(text) == 0)
        *ret_allowed =
            "after `#` is the number of an entry among those with the same key, from 2 to 256; a `#` that is part "
            "of the key is written %23";
    else if (!*ret_allowed && (len == 0 || len + (text.len - key_len) > DESCRIPTOR_KEY_MAX))
        *ret_allowed = "the key of an entry has 1 to 300 bytes";
    if (*ret_allowed)
        return false;
    memcpy(to + len, text.ptr + key_len, text.len - key_len);
    *ret = sv_of(to, len + (text.len - key_len));
    return true;
}

/* Whether some of eight bytes is `c`: of the bytes that become 0, the lowest one sets its high bit. */
static uint64_t bytes_with(uint64_t word, char c)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    uint64_t zeros = word ^ each * (unsigned char)c;
    return (zeros - each) & ~zeros & each * 0x80;
}

static bool word_is_plain(uint64_t word)
{
    return !(bytes_with(word, '%') | bytes_with(word, ',') | bytes_with(word, IN_NAME));
}

static bool key_is_plain(sv key)
{
    if (key.len <= 8)
        return word_is_plain(sv_short_word(key));
    for (size_t i = 0; i + 8 < key.len; i += 8)
        if (!word_is_plain(sv_word(key.ptr + i)))
            return false;
    return word_is_plain(sv_word(key.ptr + key.len - 8)) && key.len <= DESCRIPTOR_KEY_MAX;
}

bool descriptor_is_plain(const struct weir_request *request)
{
    const struct weir_header *entries = request->descriptor;
    if (request->descriptor_count > PLAIN_MAX)
        return false;
    for (size_t i = 0; i < request->descriptor_count; i++) {
        if (!key_is_plain(entries[i].name))
            return false;
        for (size_t k = 0; k < i; k++)
            if (sv_eq(entries[i].name, entries[k].name))
                return false;
    }
    return true;
}

/* Whether a key is the one that a name has, without its number. */
static bool is_key(sv written, bool escaped, sv key)
{
    if (!escaped)
        return sv_eq(written, key);
    size_t at = 0;
    for (size_t i = 0; i < key.len; i++) {
        char c = at < written.len ? written.ptr[at] : 0;
        bool code = c == '%';
        if (at == written.len || (code ? unescape(sv_from(written, at), IN_NAME) : c) != key.ptr[i])
            return false;
        at += code ? 3 : 1;
    }
    return at == written.len;
}

const struct weir_header *descriptor_find(const struct weir_request *request, sv name)
{
    size_t count = entry_count(request);
    if (count == 0)
        return NULL;
    sv key = sv_of(name.ptr, key_length(name));
    uint64_t number = key.len == name.len ? 1 : number_of(name);
    bool escaped = memchr(key.ptr, '%', key.len);
    for (size_t i = 0; i < count; i++)
        if (is_key(key, escaped, request->descriptor[i].name) && --number == 0)
            return &request->descriptor[i];
    return NULL;
}

/* How many entries up to this one have its key. */
static unsigned entry_number(const struct weir_request *request, size_t entry)
{
    const struct weir_header *entries = request->descriptor;
    unsigned number = 1;
    for (size_t i = 0; i < entry; i++)
        number += sv_eq(entries[i].name, entries[entry].name);
    return number;
}

/* "#2", or nothing for the first. */
static sv number_text(unsigned number, char room[NUMBER_MAX])
{
    return sv_of(room, number > 1 ? (size_t)snprintf(room, NUMBER_MAX, "#%u", number) : 0);
}

sv descriptor_name(const struct weir_request *request, size_t entry, char room[DESCRIPTOR_KEY_MAX])
{
    sv key = request->descriptor[entry].name;
    char digits[NUMBER_MAX];
    sv number = number_text(entry_number(request, entry), digits);
    bool plain = number.len == 0;
    for (size_t i = 0; plain && i < key.len; i++)
        plain = !is_escaped(key.ptr[i], IN_NAME);
    if (plain)
        return key.len <= DESCRIPTOR_KEY_MAX ? key : (sv){ 0 };
    size_t len = 0;
    for (size_t i = 0; i < key.len; i++) {
        bool code = is_escaped(key.ptr[i], IN_NAME);
        if (len + (code ? 3 : 1) + number.len > DESCRIPTOR_KEY_MAX)
            return (sv){ 0 };
        if (code)
            len += put_escaped(room + len, key.ptr[i]);
        else
            room[len++] = key.ptr[i];
    }
    memcpy(room + len, number.ptr, number.len);
    return sv_of(room, len + number.len);
}

/* ---- texts ---- */

/* A text of any length in a room of DESCRIPTOR_TEXT_MAX. When the room is full, a hash of its second half takes the place
 * of that. The hash covers the one before it, so two texts are equal only if all that was added is. */
struct text {
    char *room;
    size_t len;
};

enum { TEXT_KEPT = DESCRIPTOR_TEXT_MAX / 2 };

static void fold(struct text *t)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[SHA256_SIZE];
    sha256(t->room + TEXT_KEPT, t->len - TEXT_KEPT, hash);
    t->len = TEXT_KEPT;
    t->room[t->len++] = '%';
    t->room[t->len++] = '#';
    for (size_t i = 0; i < sizeof hash; i++) {
        t->room[t->len++] = digits[hash[i] >> 4];
        t->room[t->len++] = digits[hash[i] & 15];
    }
}

static void add_byte(struct text *t, char c)
{
    if (t->len == DESCRIPTOR_TEXT_MAX)
        fold(t);
    t->room[t->len++] = c;
}

static void add_bytes(struct text *t, sv part)
{
    if (part.len > DESCRIPTOR_TEXT_MAX - t->len) {
        for (size_t i = 0; i < part.len; i++)
            add_byte(t, part.ptr[i]);
        return;
    }
    if (part.len > 0)
        memcpy(t->room + t->len, part.ptr, part.len);
    t->len += part.len;
}

static void add_escaped(struct text *t, sv part, char mark)
{
    size_t from = 0;
    for (size_t i = 0; i < part.len; i++) {
        char code[3];
        if (!is_escaped(part.ptr[i], mark))
            continue;
        add_bytes(t, sv_of(part.ptr + from, i - from));
        add_bytes(t, sv_of(code, put_escaped(code, part.ptr[i])));
        from = i + 1;
    }
    add_bytes(t, sv_from(part, from));
}

sv descriptor_keys(const struct weir_request *request, char room[DESCRIPTOR_TEXT_MAX])
{
    struct text t = { room, 0 };
    for (size_t i = 0; i < entry_count(request); i++) {
        char digits[NUMBER_MAX];
        if (i > 0)
            add_byte(&t, ',');
        add_escaped(&t, request->descriptor[i].name, IN_NAME);
        add_bytes(&t, number_text(entry_number(request, i), digits));
    }
    return sv_of(room, t.len);
}

sv descriptor_plain_keys(const struct weir_request *request, char room[DESCRIPTOR_TEXT_MAX])
{
    char *to = room;
    for (size_t i = 0; i < request->descriptor_count; i++) {
        sv key = request->descriptor[i].name;
        if (i > 0)
            *to++ = ',';
        if (key.len > 0)
            memcpy(to, key.ptr, key.len);
        to += key.len;
    }
    return sv_of(room, (size_t)(to - room));
}

sv descriptor_text(const struct weir_request *request, char room[DESCRIPTOR_TEXT_MAX])
{
    struct text t = { room, 0 };
    for (size_t i = 0; i < entry_count(request); i++) {
        if (i > 0)
            add_byte(&t, ',');
        add_escaped(&t, request->descriptor[i].name, IN_TEXT);
        add_byte(&t, '=');
        add_escaped(&t, request->descriptor[i].value, IN_TEXT);
    }
    return sv_of(room, t.len);
}

/* Decodes a part into *to, and moves that past it. */
static bool read_part(sv part, char **to, sv *ret)
{
    char *start = *to;
    for (size_t i = 0; i < part.len; i++) {
        char meant = part.ptr[i] == '%' ? unescape(sv_from(part, i), IN_TEXT) : part.ptr[i];
        if ((part.ptr[i] == '%' && !meant) || part.ptr[i] == '=')
            return false;
        i += part.ptr[i] == '%' ? 2 : 0;
        *(*to)++ = meant;
    }
    *ret = sv_of(start, (size_t)(*to - start));
    return true;
}

size_t descriptor_read(sv text, char *bytes, struct weir_header entries[WEIR_DESCRIPTOR_MAX])
{
    size_t count = 0, commas = 0;
    for (size_t i = 0; i < text.len; i++)
        commas += text.ptr[i] == ',';
    if (text.len == 0 || commas >= WEIR_DESCRIPTOR_MAX)
        return 0;
    for (; count <= commas; count++) {
        sv entry = sv_cut(&text, ',');
        const char *equals = entry.len ? memchr(entry.ptr, '=', entry.len) : NULL;
        size_t key_len = equals ? (size_t)(equals - entry.ptr) : 0;
        if (!equals || key_len == 0 || !read_part(sv_of(entry.ptr, key_len), &bytes, &entries[count].name) ||
            !read_part(sv_from(entry, key_len + 1), &bytes, &entries[count].value))
            return 0;
    }
    return count;
}
