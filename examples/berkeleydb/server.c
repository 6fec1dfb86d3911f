/* BerkeleyDB behind the Redis protocol: the flat store that TARDiS's paper compares with (section 7), for
 * `anabranch-lab bench tardis --against`.
 *
 * A thread for each connection, all on one environment. TXN BEGIN, GET, SET and TXN COMMIT are a transaction under BerkeleyDB's own
 * two-phase locking, serializable; a deadlock refuses one of those in it with CONFLICT. Commits are written to the log and not synced,
 * as with durability `everysec`. A page as small as there is holds a few records only: BerkeleyDB locks pages.
 *
 * Only what the load generator asks for is there. An example, no server for anybody's data.
 */
#include <arpa/inet.h>
#include <db.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_WORDS = 4096, LONGEST_WORD = 1 << 20, PAGE = 512, CACHE = 256 << 20, LOCKS = 100000, INPUT = 1 << 16 };

static DB_ENV *environment;
static DB *records;

struct word {
    char *bytes;
    size_t length;
};

struct client {
    int socket;
    DB_TXN *transaction;
    FILE *output;
    char input[INPUT];
    size_t from, to;
    struct word words[MOST_WORDS];
    size_t count;
};

/* What was loaded, or a command that failed for good, must not pass for a result. */
static void must(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", what, db_strerror(result));
        exit(1);
    }
}

/* The next byte that was sent, or -1 at the end. Replies leave when nothing more has come. */
static int next(struct client *client) {
    if (client->from == client->to) {
        if (fflush(client->output) != 0)
            return -1;
        ssize_t got = read(client->socket, client->input, sizeof client->input);
        if (got <= 0)
            return -1;
        client->from = 0;
        client->to = (size_t)got;
    }
    return (unsigned char)client->input[client->from++];
}

/* The number of a line that begins with `kind`, or -1. */
static long number(struct client *client, int kind) {
    if (next(client) != kind)
        return -1;
    long value = 0;
    int byte, digits = 0;
    while ((byte = next(client)) >= '0' && byte <= '9' && ++digits < 10)
        value = value * 10 + (byte - '0');
    return digits > 0 && byte == '\r' && next(client) == '\n' ? value : -1;
}

static void forget(struct client *client) {
    for (size_t i = 0; i < client->count; i++)
        free(client->words[i].bytes);
    client->count = 0;
}

/* Reads a command; false at the end of the connection, and when it does not speak the protocol. */
static bool command(struct client *client) {
    forget(client);
    long count = number(client, '*');
    if (count < 1 || count > MOST_WORDS)
        return false;
    for (long i = 0; i < count; i++) {
        long length = number(client, '$');
        if (length < 0 || length > LONGEST_WORD)
            return false;
        struct word *word = &client->words[client->count];
        word->bytes = malloc((size_t)length + 1);
        if (word->bytes == NULL)
            return false;
        word->length = (size_t)length;
        client->count++;
        for (long at = 0; at < length; at++) {
            int byte = next(client);
            if (byte < 0)
                return false;
            word->bytes[at] = (char)byte;
        }
        word->bytes[length] = 0;
        if (next(client) != '\r' || next(client) != '\n')
            return false;
    }
    return true;
}

static void end_transaction(struct client *client) {
    if (client->transaction != NULL)
        must(client->transaction->abort(client->transaction), "abort");
    client->transaction = NULL;
}

/* Tells what failed. A deadlock has ended the transaction; it may be tried again. */
static void refuse(struct client *client, int result) {
    bool again = result == DB_LOCK_DEADLOCK || result == DB_LOCK_NOTGRANTED;
    end_transaction(client);
    if (again)
        fputs("-CONFLICT BerkeleyDB chose this transaction to break a deadlock; retry it\r\n", client->output);
    else
        fprintf(client->output, "-ERR BerkeleyDB: %s\r\n", db_strerror(result));
}

static DBT of(const struct word *word) {
    DBT dbt = {.data = word->bytes, .size = (u_int32_t)word->length};
    return dbt;
}

/* Reads `keys` keys and replies their values; nothing is replied before all are read. */
static void get(struct client *client, size_t keys, bool many) {
    DBT values[MOST_WORDS];
    memset(values, 0, sizeof values[0] * keys);
    int result = 0;
    for (size_t i = 0; i < keys; i++) {
        DBT key = of(&client->words[1 + i]);
        values[i].flags = DB_DBT_MALLOC;
        result = records->get(records, client->transaction, &key, &values[i], 0);
        if (result == DB_NOTFOUND)
            values[i].data = NULL, result = 0;
        if (result != 0)
            break;
    }
    if (result != 0)
        refuse(client, result);
    else if (many)
        fprintf(client->output, "*%zu\r\n", keys);
    for (size_t i = 0; i < keys; i++) {
        if (result == 0 && values[i].data == NULL)
            fputs("$-1\r\n", client->output);
        else if (result == 0) {
            fprintf(client->output, "$%u\r\n", values[i].size);
            fwrite(values[i].data, 1, values[i].size, client->output);
            fputs("\r\n", client->output);
        }
        free(values[i].data);
    }
}

/* Writes keys and values in turn: in the open transaction, or else in one of their own. */
static void set(struct client *client) {
    DB_TXN *own = NULL;
    int result = 0;
    if (client->transaction == NULL)
        result = environment->txn_begin(environment, NULL, &own, 0);
    DB_TXN *within = client->transaction != NULL ? client->transaction : own;
    for (size_t i = 1; result == 0 && i + 1 < client->count; i += 2) {
        DBT key = of(&client->words[i]), value = of(&client->words[i + 1]);
        result = records->put(records, within, &key, &value, 0);
    }
    if (own != NULL) {
        if (result == 0)
            result = own->commit(own, 0);
        else
            must(own->abort(own), "abort");
    }
    if (result == 0)
        fputs("+OK\r\n", client->output);
    else
        refuse(client, result);
}

static void transaction(struct client *client, const char *what) {
    int result = 0;
    if (strcasecmp(what, "BEGIN") == 0 && client->transaction == NULL)
        result = environment->txn_begin(environment, NULL, &client->transaction, 0);
    else if (strcasecmp(what, "COMMIT") == 0 && client->transaction != NULL) {
        DB_TXN *ending = client->transaction;
        client->transaction = NULL;
        result = ending->commit(ending, 0);
    } else if (strcasecmp(what, "ABORT") == 0)
        end_transaction(client);
    else {
        fputs("-ERR TXN BEGIN inside of a transaction, or TXN COMMIT outside of one\r\n", client->output);
        return;
    }
    if (result == 0)
        fputs("+OK\r\n", client->output);
    else
        refuse(client, result);
}

static void perform(struct client *client) {
    const char *name = client->words[0].bytes;
    size_t arguments = client->count - 1;
    if (strcasecmp(name, "GET") == 0 && arguments == 1)
        get(client, 1, false);
    else if (strcasecmp(name, "MGET") == 0 && arguments >= 1)
        get(client, arguments, true);
    else if ((strcasecmp(name, "SET") == 0 && arguments == 2) ||
             (strcasecmp(name, "MSET") == 0 && arguments >= 2 && arguments % 2 == 0))
        set(client);
    else if (strcasecmp(name, "TXN") == 0 && arguments == 1)
        transaction(client, client->words[1].bytes);
    else if (strcasecmp(name, "PING") == 0)
        fputs("+PONG\r\n", client->output);
    else if (strcasecmp(name, "INFO") == 0) {
        char text[64];
        int length = snprintf(text, sizeof text, "process_id:%d\r\n", (int)getpid());
        fprintf(client->output, "$%d\r\n%s\r\n", length, text);
    } else
        fputs("-ERR only GET, MGET, SET, MSET, TXN, PING and INFO are here\r\n", client->output);
}

static void *serve(void *argument) {
    struct client *client = argument;
    while (command(client))
        perform(client);
    forget(client);
    end_transaction(client);
    fclose(client->output);
    free(client);
    return NULL;
}

static void open_store(const char *folder) {
    must(db_env_create(&environment, 0), "db_env_create");
    must(environment->set_cachesize(environment, 0, CACHE, 1), "set_cachesize");
    must(environment->set_lk_detect(environment, DB_LOCK_YOUNGEST), "set_lk_detect");
    must(environment->set_lk_max_locks(environment, LOCKS), "set_lk_max_locks");
    must(environment->set_lk_max_objects(environment, LOCKS), "set_lk_max_objects");
    must(environment->set_lk_max_lockers(environment, LOCKS), "set_lk_max_lockers");
    must(environment->set_tx_max(environment, 10000), "set_tx_max");
    must(environment->set_flags(environment, DB_TXN_WRITE_NOSYNC, 1), "set_flags");
    must(environment->log_set_config(environment, DB_LOG_AUTO_REMOVE, 1), "log_set_config");
    u_int32_t flags = DB_CREATE | DB_INIT_TXN | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL | DB_RECOVER | DB_PRIVATE | DB_THREAD;
    must(environment->open(environment, folder, flags, 0), folder);
    must(db_create(&records, environment, 0), "db_create");
    must(records->set_pagesize(records, PAGE), "set_pagesize");
    flags = DB_CREATE | DB_AUTO_COMMIT | DB_THREAD;
    must(records->open(records, NULL, "records.db", NULL, DB_BTREE, flags, 0), "records.db");
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: %s PORT FOLDER\n", arguments[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    open_store(arguments[2]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 512) != 0) {
        perror("cannot listen");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct client *client = calloc(1, sizeof *client);
        int peer = accept(listener, NULL, NULL);
        if (client == NULL || peer < 0) {
            free(client);
            continue;
        }
        setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        client->socket = peer;
        client->output = fdopen(peer, "w");
        pthread_t thread;
        if (client->output == NULL || pthread_create(&thread, NULL, serve, client) != 0) {
            perror("cannot serve a connection");
            return 1;
        }
        pthread_detach(thread);
    }
}
