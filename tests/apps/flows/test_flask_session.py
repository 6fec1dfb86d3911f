"""Flask-Session: sessions of a Flask application in the server."""

import flask
import pytest
import redis
from flask_session import Session


@pytest.fixture
def app(client, url):
    app = flask.Flask("shop")
    app.config.update(SESSION_TYPE="redis", SESSION_REDIS=redis.Redis.from_url(url), PERMANENT_SESSION_LIFETIME=60)
    Session(app)

    @app.route("/add/<item>")
    def add(item):
        flask.session["items"] = [*flask.session.get("items", []), item]
        return {"items": flask.session["items"]}

    @app.route("/leave")
    def leave():
        flask.session.clear()
        return {}

    return app


def test_each_browser_has_its_session(app, client):
    ada, bob = app.test_client(), app.test_client()
    assert ada.get("/add/tea").json == {"items": ["tea"]}
    assert bob.get("/add/milk").json == {"items": ["milk"]}
    assert ada.get("/add/bread").json == {"items": ["tea", "bread"]}
    keys = client.keys("session:*")
    assert len(keys) == 2 and all(0 < client.ttl(key) <= 60 for key in keys)


def test_a_session_that_ends_is_removed(app, client):
    ada = app.test_client()
    ada.get("/add/tea")
    ada.get("/leave")
    assert client.keys("session:*") == []
    assert ada.get("/add/milk").json == {"items": ["milk"]}


def test_a_session_that_expired_is_new(app, client):
    ada = app.test_client()
    ada.get("/add/tea")
    [key] = client.keys("session:*")
    assert client.pexpire(key, 0)
    assert ada.get("/add/milk").json == {"items": ["milk"]}
