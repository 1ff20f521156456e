# frozen_string_literal: true

require_relative "helper"
require_relative "operations"

# The library has at least everything that the last release had.
class ShapesTest < Minitest::Test
  include Clients

  SIGNATURES = Dir[File.expand_path("../sig/generated/*.rbs", __dir__)].map { |path| File.read(path) }.join
  # The keys of each type of a nested Hash, by its name.
  INPUTS = SIGNATURES.scan(/((?: *#   [^\n]*\n)*) *type (\w+) = Hash/).to_h { |keys, name| [name, keys.scan(/#   (\w+)!?:/).flatten] }

  JSON.parse(File.read(File.expand_path("../../vectors/shapes.json", __dir__))).each do |api, shapes|
    define_method("test_operations_of_#{api}") do
      client, = send(api)
      shapes["operations"].each do |id|
        group, method = OPERATIONS[api].fetch(id)
        assert_respond_to client.public_send(group), method
      end
    end

    define_method("test_records_of_#{api}") do
      shapes["records"].each do |name, members|
        assert_empty members - members_of(name), "#{name} lacks members"
      end
    end

    define_method("test_enums_of_#{api}") do
      shapes["enums"].each do |name, values|
        enum = Kickstand.const_get(pascal(name))
        assert_empty values - enum::VALUES, "#{name} lacks values"
        assert_equal enum::VALUES.sort, (enum.constants - [:VALUES]).map { |constant| enum.const_get(constant) }.sort
      end
    end
  end

  private

  def pascal(name) = name.split("_").map(&:capitalize).join

  def members_of(name)
    return INPUTS.fetch(name) if INPUTS.key?(name)

    record = Kickstand.const_get(pascal(name))
    assert_operator record, :<, Kickstand::Record
    record.members.keys.map(&:name)
  end
end
