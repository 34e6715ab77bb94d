/* A program of somebody else: makes a pool on loopback, and in a second process joins it. */
#include <atom/atom.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;
static pool_run *run;
static int ended; /* of the child */

/* Leaves after a version that both brought something to; the creator after the other. */
static void report(void *ctx, const train_report *r)
{
    static pool_run_status s;
    bool *both = ctx;
    (void)r;
    pool_run_read_status(run, false, &s);
    for (uint32_t i = 0; i < s.pool.n_rounds; i++)
        *both |= s.pool.round[i].n_contributors == 2 && s.anchor.applied >= s.pool.round[i].version;
    if (*both && (!child || waitpid(child, &ended, WNOHANG) == child))
        pool_run_leave(run);
}

static atom_status write_all(void)
{
    static const char model[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 257, \"n_positions\": 16,"
        " \"n_embd\": 16, \"n_layer\": 1, \"n_head\": 2}";
    static const char yml[] =
        "model: model.json\ndata: data\nmicro_batch_size: 2\nsequence_len: 16\n"
        "max_steps: 1000000\nlearning_rate: 1e-3\nexecute: interpreted\n"
        "pool:\n  sync_steps: 4\n  fragments: 2\n  heartbeat_seconds: 0.1\n";
    static const char *const inputs[] = {"book.txt"};
    const text_prepare_options data = {
        .inputs = inputs, .inputs_n = 1, .tokenizer = "bytes", .output_dir = "data"};
    char book[6000];
    for (size_t i = 0; i < sizeof book; i++)
        book[i] = "the quick brown fox jumps over the lazy dog\n"[i % 44];
    ATOM_TRY(atom_file_write("model.json", model, strlen(model)));
    ATOM_TRY(atom_file_write("run.yml", yml, strlen(yml)));
    ATOM_TRY(atom_file_write("book.txt", book, sizeof book));
    return text_prepare(&data, NULL);
}

int main(void)
{
    char *address = "127.0.0.1:0", ticket[GSP_TICKET_TEXT_BYTES] = "";
    bool both = false;
    int way[2];
    if (write_all() != ATOM_OK || pipe(way) != 0 || (child = fork()) < 0)
        return 1;
    if (!child && read(way[0], ticket, sizeof ticket) <= 0)
        return 2;
    const pool_host host = {
        .listen = {.n = 1, .items = &address}, .no_lan = true, .no_directory = true};
    const pool_option one[] = {{"threads", "1"}};
    const pool_hooks hooks = {.ctx = &both, .report = report};
    const pool_run_config config = {
        .dir = child ? "a" : "b", .host = &host, .train = one, .n_train = 1, .hooks = &hooks};
    train_summary summary;
    atom_status st = child ? pool_run_create(&config, &(pool_create){.config = "run.yml"}, &run)
                           : pool_run_join(&config, &(pool_join){.ticket = ticket}, &run);
    if (st == ATOM_OK && child && write(way[1], pool_run_ticket(run), sizeof ticket) <= 0)
        return 3;
    st = st == ATOM_OK ? pool_run_train(run, &summary, NULL) : st;
    if (st != ATOM_OK)
        atom_log(ATOM_LOG_ERROR, "%s", atom_fail_message());
    pool_run_close(&run);
    return st == ATOM_OK && both && !ended ? 0 : 4;
}
