# frozen_string_literal: true

require_relative "helper"

class RecordTest < Minitest::Test
  RAW = {
    "id" => "t-1", "status" => "snoozed", "number" => 7, "created_at" => "2026-11-21T09:00:00.123+01:00", "tags" => ["lock"],
    "customer" => { "id" => "c-1", "email" => "ada@example.com" }, "sla" => [{ "metric" => "first_response", "due_at" => "2026-11-21T10:00:00Z" }],
    "mood" => { "score" => 3 }
  }.freeze

  def setup
    @ticket = Kickstand::Ticket.new(RAW)
  end

  def test_has_readers
    assert_equal ["t-1", "snoozed", 7, ["lock"]], [@ticket.id, @ticket.status, @ticket.number, @ticket.tags]
    assert_equal Time.utc(2026, 11, 21, 8, 0, 0.123r), @ticket.created_at
    assert_equal "ada@example.com", @ticket.customer.email
    assert_equal Time.utc(2026, 11, 21, 10), @ticket.sla.first.due_at
    assert_nil @ticket.subject
  end

  def test_keeps_unknown_members
    assert_equal({ "score" => 3 }, @ticket.raw["mood"])
    assert_equal({ "score" => 3 }, @ticket[:mood])
    refute_includes @ticket.to_h, :mood
    assert_equal RAW, JSON.parse(@ticket.to_json)
    assert_equal RAW, JSON.parse(JSON.generate([@ticket])).first
  end

  def test_is_immutable
    [@ticket, @ticket.raw, @ticket.tags, @ticket.status, @ticket.customer.raw, @ticket.sla, @ticket.created_at].each { |object| assert_predicate object, :frozen? }
    assert_raises(FrozenError) { @ticket.raw["id"] = "other" }
    assert_raises(FrozenError) { @ticket.instance_variable_set(:@raw, {}) }
    raw = { "tags" => ["a"] }.freeze
    raw["tags"] << "b"
    assert_equal %w[a b], Kickstand::Ticket.new(raw).tags
  end

  def test_is_compared_by_class_and_json
    same = Kickstand::Ticket.new(JSON.parse(JSON.generate(RAW)))
    assert_equal [@ticket, @ticket.hash], [same, same.hash]
    assert_equal 1, [@ticket, same].uniq.size
    refute_equal @ticket, Kickstand::Ticket.new(RAW.merge("mood" => nil))
    refute_equal Kickstand::Customer.new("id" => "1"), Kickstand::Member.new("id" => "1")
  end

  def test_matches_patterns
    case @ticket
    in { status: String => status, customer: { email: }, sla: [{ due_at: Time }] } then assert_equal %w[snoozed ada@example.com], [status, email]
    end
  end

  def test_has_a_deep_hash
    assert_equal "ada@example.com", @ticket.to_h.dig(:customer, :email)
    assert_equal({ metric: "first_response" }, @ticket.to_h[:sla].first.slice(:metric))
  end

  def test_leaves_values_that_do_not_fit
    odd = Kickstand::Ticket.new("created_at" => "2026-11-21T09:00:00", "updated_at" => 5, "resolved_at" => "2026-13-41T99:00:00Z",
                                "customer" => "c-1", "sla" => "none", "tags" => nil)
    assert_equal ["2026-11-21T09:00:00", 5, "2026-13-41T99:00:00Z", "c-1", "none", nil],
                 [odd.created_at, odd.updated_at, odd.resolved_at, odd.customer, odd.sla, odd.tags]
  end

  def test_can_be_marshalled
    copy = Marshal.load(Marshal.dump(@ticket))
    assert_equal @ticket, copy
    assert_predicate copy, :frozen?
    assert_equal @ticket.created_at, copy.created_at
  end

  def test_does_not_replace_methods_of_object
    request = Kickstand::DeliveryAttemptRequest.new("method" => "POST")
    assert_equal "POST", request.method_value
    assert_respond_to request.method(:url), :call
  end

  # No name of a member, such as "value", breaks the other readers of its record.
  def test_reads_every_member_of_every_record
    records = Kickstand.constants.map { |name| Kickstand.const_get(name) }.grep(Class).select { |of| of < Kickstand::Record }
    records.each do |of|
      record = of.new(of.members.to_h { |name, _| [name.name, nil] })
      assert_equal of.members.keys, record.to_h.keys, of
      of.members.each_key { |name| assert_nil record[name], "#{of}##{name}" }
      (of.public_instance_methods(false) & of.members.keys).each { |name| assert_nil record.public_send(name), "#{of}##{name}" }
    end
    assert_includes records, Kickstand::Alert
  end

  def test_inspects_its_members
    assert_match(/\A#<Kickstand::Ticket .*status="snoozed"/, @ticket.inspect)
  end
end
