#include "source/kept_text.h"

#include <string.h>

#include "source/source.h"

void kept_text_done(struct kept_text *kept)
{
    rules_text_done(&kept->text);
    *kept = (struct kept_text){ 0 };
}

/* Nothing but the version tells whether the file is still the one that was written: a text that is nearly right would put
 * rules into the next file that are not in force. */
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
    return true;
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
    int r = source_write_file(path, head, text, error);
    if (r == 0 && rules_file_version(path, &kept->version) && kept->version.bytes == head.len + text.len)
        kept->head = head.len;
    kept_text_unload(kept);
    return r;
}
