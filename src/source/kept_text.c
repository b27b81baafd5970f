#include "source/kept_text.h"

#include <string.h>

#include "base/hash.h"
#include "source/source.h"

void kept_text_done(struct kept_text *kept)
{
    rules_text_done(&kept->text);
    *kept = (struct kept_text){ 0 };
}

void kept_text_take(struct kept_text *kept, struct kept_text *from)
{
    kept_text_done(kept);
    *kept = *from;
    *from = (struct kept_text){ 0 };
}

static uint64_t hash_of(sv text)
{
    static const struct hash_key key = { 0, 0 };
    struct hash hash;
    hash_init(&hash, &key);
    hash_text(&hash, text.ptr, text.len);
    return hash_final(&hash);
}

/* A text that is nearly right would put rules into the next file that are not in force, or keep rules from coming into
 * force. The version of the file is not enough: another service may have replaced the file before its version was known. */
static bool read_back(struct kept_text *kept, const char *path)
{
    struct buf *text = &kept->text.text;
    struct file_version version;
    buf_init(text, kept->version.bytes);
    if (!buf_room(text, kept->version.bytes) || rules_file_read(path, text, &version, NULL) < 0)
        return false;
    if (!file_version_same(&version, &kept->version) || text->len != version.bytes)
        return false;
    text->len -= kept->head;
    memmove(text->ptr, text->ptr + kept->head, text->len + 1);
    return hash_of(buf_sv(text)) == kept->hash;
}

void kept_text_load(struct kept_text *kept, const char *path)
{
    if (kept->head > 0 && !kept->text.text.ptr && !read_back(kept, path))
        kept_text_done(kept);
}

void kept_text_unload(struct kept_text *kept)
{
    if (kept->head > 0)
        buf_done(&kept->text.text);
}

int kept_text_write(struct kept_text *kept, const char *path, sv head, struct weir_error *error)
{
    sv text = buf_sv(&kept->text.text);
    kept->head = 0;
    kept->hash = hash_of(text);
    int r = source_write_file(path, head, text, error);
    if (r == 0 && rules_file_version(path, &kept->version) && kept->version.bytes == head.len + text.len)
        kept->head = head.len;
    kept_text_unload(kept);
    return r;
}
