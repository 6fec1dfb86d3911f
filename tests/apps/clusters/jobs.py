"""The same job as an application of Celery, RQ and huey. Its server is the one that APPS_URL names; that a job ran is a
line in the file that APPS_DONE names.
"""

import os
import time

import redis
from celery import Celery
from huey import RedisHuey
from rq import Queue

URL = os.environ["APPS_URL"]
celery = Celery("jobs", broker=URL)
# What a worker had taken when its connection broke goes to another after so many seconds.
celery.conf.update(broker_transport_options={"visibility_timeout": 5}, task_ignore_result=True)
huey = RedisHuey("jobs", url=URL)


def job(number: int) -> None:
    with open(os.environ["APPS_DONE"], "a") as done:
        done.write(f"{number}\n")


job_of_celery = celery.task(job, name="job", acks_late=True)
job_of_huey = huey.task(name="job")(job)


def submit(application: str, jobs: int) -> None:
    """Gives so many jobs to the application's queue."""
    queue = Queue(connection=redis.Redis.from_url(URL))
    for number in range(jobs):
        if application == "celery":
            job_of_celery.delay(number)
        elif application == "rq":
            queue.enqueue("jobs.job", number)
        else:
            job_of_huey(number)
        # The jobs come while processes die.
        time.sleep(0.01)
