# frozen_string_literal: true

require_relative "helper"
require "bigdecimal"
require "pathname"

class WireTest < Minitest::Test
  Wire = Kickstand::Wire

  def test_encodes_values
    {
      nil => nil, true => true, 5 => 5, 2**70 => 2**70, 0.1 => 0.1, :open => "open", "ä" => "ä",
      BigDecimal("0.1") => 0.1, BigDecimal("12") => 12, 1/4r => 0.25, "ä".encode("ISO-8859-1") => "ä", "\xC3\xA4".b => "ä",
      Time.new(2026, 11, 21, 10, 0, 0.1239r, "+01:00") => "2026-11-21T09:00:00.123Z",
      Date.new(2026, 11, 21) => "2026-11-21", DateTime.new(2026, 11, 21, 10, 0, 0, "+1") => "2026-11-21T09:00:00.000Z",
      { a: { "b" => [:c] }, d: Kickstand::OMIT } => { "a" => { "b" => ["c"] } },
      Kickstand::FieldError.new("code" => "x", "new" => 1) => { "code" => "x", "new" => 1 }
    }.each { |value, expected| expected.nil? ? assert_nil(Wire.encode(value)) : assert_equal(expected, Wire.encode(value)) }
  end

  def test_refuses_values_without_a_form
    [Float::NAN, Float::INFINITY, BigDecimal("NaN"), Rational(10**400, 3), Complex(1, 2), "\xFF", "\xFF".b, Object.new, Pathname("x"), { "\xFF" => 1 }].each do |value|
      assert_raises(ArgumentError, value.inspect) { Wire.encode(value) }
    end
  end

  def test_escapes_segments
    { "a/b" => "a%2Fb", "a?b#c" => "a%3Fb%23c", "ä b" => "%C3%A4%20b", "..." => "...", 5 => "5", :high => "high", "%2e" => "%252e" }.each do |id, expected|
      assert_equal expected, Wire.segment(id)
    end
    ["", ".", "..", nil, 1.5, [], Kickstand::OMIT, "\xFF"].each { |id| assert_raises(ArgumentError, id.inspect) { Wire.segment(id) } }
  end

  def test_builds_queries
    assert_equal "", Wire.query("a" => nil)
    assert_equal "?a=1%2C2&b%5B%5D=x&b%5B%5D=y&c=false&d%5Bgte%5D=2026-11-21T09%3A00%3A00.000Z",
                 Wire.query("a" => [1, 2], "b[]" => %w[x y], "c" => false, "d[gte]" => Time.utc(2026, 11, 21, 9))
    assert_raises(ArgumentError) { Wire.query("a" => { b: 1 }) }
    assert_raises(ArgumentError) { Wire.query("a" => [nil]) }
  end

  def test_reads_only_utf8
    assert_equal({ "a" => "ä" }, Wire.parse("{\"a\":\"ä\"}".b))
    assert_raises(JSON::ParserError) { Wire.parse("{\"a\":\"\xFF\"}") }
    assert_predicate Wire.parse('{"a":["b"]}')["a"].first, :frozen?
  end
end
