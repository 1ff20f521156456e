# frozen_string_literal: true

require_relative "helper"

class PageTest < Minitest::Test
  include Clients

  def pages(*lists)
    lists.each_with_index.map do |ids, i|
      more = i < lists.size - 1
      json(200, { object: "list", data: ids.map { |id| { id: } }, has_more: more, next_cursor: more ? "c#{i + 1}" : nil })
    end
  end

  def test_fetches_pages_when_they_are_reached
    client, transport = helpdesk(*pages(%w[a b], %w[c], %w[d]))
    list = client.tickets.list(status: "open", limit: 2)
    assert_equal %w[a b], list.first(2).map(&:id)
    assert_equal 1, transport.requests.size
    assert_equal("c", list.lazy.map(&:id).find { |id| id > "b" })
    assert_equal 2, transport.requests.size
    assert_equal "status=open&limit=2&cursor=c1", transport.requests.last.uri.query
  end

  def test_is_enumerable
    client, = helpdesk(*pages(%w[a], %w[b]))
    page = client.tickets.list
    assert_equal [1, true, "c1"], [page.data.size, page.has_more?, page.next_cursor]
    assert_equal({ data: [{ id: "a" }], has_more: true, next_cursor: "c1" }, { **page.to_h, data: page.to_h[:data].map { |item| item.slice(:id) } })
    assert_equal %w[a b], page.map(&:id)
  end

  def test_has_an_external_enumerator
    client, = helpdesk(*pages(%w[a], %w[b]))
    each = client.tickets.list.each
    assert_equal %w[a b], [each.next.id, each.next.id]
    assert_raises(StopIteration) { each.next }
  end

  def test_refuses_an_answer_that_is_no_list
    [{ id: "t" }, { data: {} }, { data: [5] }].each do |body|
      client, = helpdesk(json(200, body))
      assert_match(/not a list/, assert_raises(Kickstand::Error) { client.tickets.list }.message)
    end
  end

  def test_refuses_an_answer_without_content
    client, = helpdesk(json(204, nil))
    assert_match(/not a list/, assert_raises(Kickstand::Error) { client.tickets.list }.message)
  end
end
