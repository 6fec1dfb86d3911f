// Package apps has documented uses of Go libraries, for a server or the processes of a cluster at APPS_PORTS.
package apps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/gomodule/redigo/redis"
	"github.com/hibiken/asynq"
	goredis9 "github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func addresses() []string {
	var all []string
	for _, port := range strings.Split(os.Getenv("APPS_PORTS"), ",") {
		all = append(all, "127.0.0.1:"+port)
	}
	return all
}

// client is of the version of the protocol that is compared, after the server has forgotten all keys.
func client(t *testing.T) *goredis9.Client {
	protocol, err := strconv.Atoi(os.Getenv("APPS_PROTOCOL"))
	check(t, err)
	made := goredis9.NewClient(&goredis9.Options{Addr: addresses()[0], Protocol: protocol})
	check(t, made.FlushDB(ctx).Err())
	t.Cleanup(func() { made.Close() })
	return made
}

func clusterClient(t *testing.T) *goredis9.ClusterClient {
	made := goredis9.NewClusterClient(&goredis9.ClusterOptions{Addrs: addresses()[:1]})
	check(t, made.ForEachMaster(ctx, func(ctx context.Context, node *goredis9.Client) error { return node.FlushDB(ctx).Err() }))
	t.Cleanup(func() { made.Close() })
	return made
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestRedsyncLockExcludesOthers(t *testing.T) {
	pool := goredis.NewPool(client(t))
	locks := redsync.New(pool)
	first := locks.NewMutex("lock", redsync.WithExpiry(time.Second))
	check(t, first.Lock())
	second := locks.NewMutex("lock", redsync.WithTries(1))
	var taken *redsync.ErrTaken
	if err := second.Lock(); !errors.As(err, &taken) {
		t.Fatalf("got %v", err)
	}
	extended, err := first.Extend()
	check(t, err)
	equal(t, extended, true)
	valid, err := first.Valid()
	check(t, err)
	equal(t, valid, true)
	unlocked, err := first.Unlock()
	check(t, err)
	equal(t, unlocked, true)
	check(t, second.Lock())
}

func TestRedsyncLockExpires(t *testing.T) {
	locks := redsync.New(goredis.NewPool(client(t)))
	first := locks.NewMutex("lock", redsync.WithExpiry(100*time.Millisecond))
	check(t, first.Lock())
	second := locks.NewMutex("lock", redsync.WithRetryDelay(20*time.Millisecond))
	check(t, second.Lock())
	if _, err := first.Unlock(); err == nil {
		t.Fatal("what has expired was unlocked")
	}
}

func TestRedsyncCountsUnderContention(t *testing.T) {
	connection := client(t)
	locks := redsync.New(goredis.NewPool(connection))
	var all sync.WaitGroup
	var failed atomic.Value
	for range 8 {
		all.Go(func() {
			for range 5 {
				mutex := locks.NewMutex("contended", redsync.WithTries(500), redsync.WithRetryDelay(5*time.Millisecond))
				if err := mutex.Lock(); err != nil {
					failed.Store(err)
					return
				}
				// Without the lock, increments would be lost.
				count, _ := connection.Get(ctx, "count").Int()
				connection.Set(ctx, "count", count+1, 0)
				mutex.Unlock()
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(err)
	}
	count, err := connection.Get(ctx, "count").Int()
	check(t, err)
	equal(t, count, 40)
}

func TestGoRedisOptimisticLocking(t *testing.T) {
	connection := client(t)
	increment := func(tx *goredis9.Tx) error {
		count, err := tx.Get(ctx, "watched").Int()
		if err != nil && err != goredis9.Nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe goredis9.Pipeliner) error {
			return pipe.Set(ctx, "watched", count+1, 0).Err()
		})
		return err
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for done := 0; done < 10; {
				if connection.Watch(ctx, increment, "watched") == nil {
					done++
				}
			}
		})
	}
	all.Wait()
	count, err := connection.Get(ctx, "watched").Int()
	check(t, err)
	equal(t, count, 60)
}

func TestGoRedisScanAndScripts(t *testing.T) {
	connection := client(t)
	for number := range 500 {
		check(t, connection.Set(ctx, fmt.Sprint("key:", number), number, 0).Err())
	}
	var found []string
	for keys := connection.Scan(ctx, 0, "key:*", 50).Iterator(); keys.Next(ctx); {
		found = append(found, keys.Val())
	}
	slices.Sort(found)
	equal(t, len(slices.Compact(found)), 500)
	script := goredis9.NewScript(`return redis.call("INCRBY", KEYS[1], ARGV[1])`)
	total, err := script.Run(ctx, connection, []string{"total"}, 7).Int()
	check(t, err)
	equal(t, total, 7)
}

func TestGoRedisStreamOfAGroup(t *testing.T) {
	connection := client(t)
	check(t, connection.XGroupCreateMkStream(ctx, "stream", "group", "0").Err())
	for number := range 10 {
		check(t, connection.XAdd(ctx, &goredis9.XAddArgs{Stream: "stream", Values: []any{"number", number}}).Err())
	}
	read := func(consumer string) int {
		streams, err := connection.XReadGroup(ctx, &goredis9.XReadGroupArgs{
			Group: "group", Consumer: consumer, Streams: []string{"stream", ">"}, Count: 5, Block: -1,
		}).Result()
		check(t, err)
		return len(streams[0].Messages)
	}
	equal(t, read("first")+read("second"), 10)
	claimed, _, err := connection.XAutoClaim(ctx, &goredis9.XAutoClaimArgs{
		Stream: "stream", Group: "group", Consumer: "second", MinIdle: 0, Start: "0", Count: 100,
	}).Result()
	check(t, err)
	equal(t, len(claimed), 10)
	for _, message := range claimed {
		check(t, connection.XAck(ctx, "stream", "group", message.ID).Err())
	}
	pending, err := connection.XPending(ctx, "stream", "group").Result()
	check(t, err)
	equal(t, pending.Count, 0)
}

func TestRedigoPoolAndSubscription(t *testing.T) {
	client(t)
	pool := redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addresses()[0]) }}
	defer pool.Close()
	connection := pool.Get()
	defer connection.Close()
	subscriber := pool.Get()
	defer subscriber.Close()
	subscription := redis.PubSubConn{Conn: subscriber}
	check(t, subscription.Subscribe("channel"))
	if _, subscribed := subscription.Receive().(redis.Subscription); !subscribed {
		t.Fatal("not subscribed")
	}
	_, err := connection.Do("PUBLISH", "channel", "hello")
	check(t, err)
	message, isMessage := subscription.Receive().(redis.Message)
	equal(t, isMessage, true)
	equal(t, string(message.Data), "hello")
	for _, command := range [][]any{{"a", 1}, {"b", 2}, {"c", 3}} {
		check(t, connection.Send("SET", command...))
	}
	check(t, connection.Flush())
	for range 3 {
		_, err := connection.Receive()
		check(t, err)
	}
	values, err := redis.Ints(connection.Do("MGET", "a", "b", "c"))
	check(t, err)
	equal(t, fmt.Sprint(values), "[1 2 3]")
}

func TestAsynqRetriesAndSchedules(t *testing.T) {
	client(t)
	broker := asynq.RedisClientOpt{Addr: addresses()[0]}
	enqueue := asynq.NewClient(broker)
	defer enqueue.Close()
	var done, tries atomic.Int32
	handler := asynq.NewServeMux()
	handler.HandleFunc("count", func(context.Context, *asynq.Task) error { done.Add(1); return nil })
	handler.HandleFunc("fails-once", func(context.Context, *asynq.Task) error {
		if tries.Add(1) == 1 {
			return errors.New("the first time")
		}
		return nil
	})
	worker := asynq.NewServer(broker, asynq.Config{
		Concurrency: 4, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
	})
	check(t, worker.Start(handler))
	defer worker.Shutdown()
	for number := range 50 {
		_, err := enqueue.Enqueue(asynq.NewTask("count", nil), asynq.TaskID(fmt.Sprint(number)))
		check(t, err)
	}
	_, err := enqueue.Enqueue(asynq.NewTask("count", nil), asynq.ProcessIn(300*time.Millisecond))
	check(t, err)
	_, err = enqueue.Enqueue(asynq.NewTask("fails-once", nil), asynq.MaxRetry(3))
	check(t, err)
	_, err = enqueue.Enqueue(asynq.NewTask("count", []byte("one")), asynq.Unique(time.Minute), asynq.ProcessIn(time.Hour))
	check(t, err)
	_, err = enqueue.Enqueue(asynq.NewTask("count", []byte("one")), asynq.Unique(time.Minute))
	equal(t, errors.Is(err, asynq.ErrDuplicateTask), true)
	for deadline := time.Now().Add(20 * time.Second); done.Load() < 51 || tries.Load() < 2; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("done %d, tries %d", done.Load(), tries.Load())
		}
	}
	inspector := asynq.NewInspector(broker)
	defer inspector.Close()
	queue, err := inspector.GetQueueInfo("default")
	check(t, err)
	equal(t, queue.Scheduled, 1)
}

func TestClusterOfProcesses(t *testing.T) {
	connection := clusterClient(t)
	for number := range 300 {
		check(t, connection.Set(ctx, fmt.Sprint("key:", number), number, 0).Err())
	}
	var masters atomic.Int32
	var keys atomic.Int64
	check(t, connection.ForEachMaster(ctx, func(ctx context.Context, node *goredis9.Client) error {
		masters.Add(1)
		size, err := node.DBSize(ctx).Result()
		keys.Add(size)
		return err
	}))
	equal(t, masters.Load(), 3)
	commands, err := connection.Pipelined(ctx, func(pipe goredis9.Pipeliner) error {
		for number := range 300 {
			pipe.Incr(ctx, fmt.Sprint("key:", number))
		}
		return nil
	})
	check(t, err)
	for number, command := range commands {
		equal(t, command.(*goredis9.IntCmd).Val(), int64(number+1))
	}
	check(t, connection.Watch(ctx, func(tx *goredis9.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe goredis9.Pipeliner) error {
			pipe.Set(ctx, "{tag}a", 1, 0)
			pipe.Set(ctx, "{tag}b", 2, 0)
			return nil
		})
		return err
	}, "{tag}a"))
	values, err := connection.MGet(ctx, "{tag}a", "{tag}b").Result()
	check(t, err)
	equal(t, fmt.Sprint(values), "[1 2]")
	subscription := connection.Subscribe(ctx, "channel")
	defer subscription.Close()
	_, err = subscription.Receive(ctx)
	check(t, err)
	check(t, connection.Publish(ctx, "channel", "hello").Err())
	message, err := subscription.ReceiveMessage(ctx)
	check(t, err)
	equal(t, message.Payload, "hello")
}
