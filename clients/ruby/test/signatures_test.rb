# frozen_string_literal: true

require_relative "helper"
require "stringio"

begin
  require "rbs"
rescue LoadError
  warn "The signatures in sig/ are not checked: the gem rbs is not installed."
end

# sig/ has every public method of the library with its parameters, and nothing else.
class SignatureFilesTest < Minitest::Test
  FOLDER = File.expand_path("../sig", __dir__)
  # Libraries with types that the signatures name.
  LIBRARIES = %w[json uri date time pathname].freeze

  def self.environment
    @environment ||= begin
      loader = RBS::EnvironmentLoader.new
      LIBRARIES.each { |library| loader.add(library:, version: nil) }
      loader.add(path: Pathname(FOLDER))
      RBS::DefinitionBuilder.new(env: RBS::Environment.from_loader(loader).resolve_type_names)
    end
  end

  # Classes that users do not call.
  INTERNAL = [Kickstand::HTTP, Kickstand::Limits, Kickstand::Lines, Kickstand::RetryPolicy, Kickstand::Signature, Kickstand::Type, Kickstand::Wire].freeze

  def self.modules(within = Kickstand)
    found = within.constants(false).map { |name| within.const_get(name) }.grep(Module).select { |mod| mod.name.start_with?("Kickstand::") }
    [within, *found.reject { |mod| INTERNAL.include?(mod) }.flat_map { |mod| modules(mod) }]
  end

  modules.each do |mod|
    define_method("test_#{mod.name}") do
      skip "rbs is missing" unless defined?(RBS)
      compare(mod, signatures(mod, :instance), mod.public_instance_methods(false)) { |name| mod.instance_method(name) }
      compare(mod, signatures(mod, :singleton), mod.singleton_methods(false)) { |name| mod.method(name) }
    end
  end

  def test_signatures_are_valid
    skip "rbs is missing" unless defined?(RBS)
    require "rbs/cli"
    libraries = LIBRARIES.flat_map { |library| ["-r", library] }
    RBS::CLI.new(stdout: StringIO.new, stderr: StringIO.new).run([*libraries, "-I", FOLDER, "validate", "--silent"])
    pass # no error was raised
  end

  def test_all_modules_are_found
    names = self.class.modules.map(&:name)
    ["Kickstand::Helpdesk::Tickets", "Kickstand::Ticket", "Kickstand::Webhooks::Event", "Kickstand::Transport::Request", "Kickstand::TicketStatus"].each do |name|
      assert_includes names, name
    end
  end

  private

  # @return [Hash{Symbol => RBS::Definition::Method}] the methods that the module itself has
  def signatures(mod, kind)
    type = RBS::TypeName.new(name: mod.name.split("::").last.to_sym, namespace: RBS::Namespace.parse("::#{mod.name}").parent)
    builder = self.class.environment
    definition = kind == :singleton ? builder.build_singleton(type) : builder.build_instance(type)
    definition.methods.select { |name, method| method.defined_in == type && method.accessibility == :public && name != :initialize && name != :new }
  end

  def compare(mod, signatures, methods)
    assert_equal signatures.keys.sort, methods.sort, "the methods of #{mod} and of its signature differ"
    methods.each do |name|
      parameters = yield(name).parameters
      signatures[name].method_types.each { |type| compare_parameters("#{mod}##{name}", type.type, parameters) }
    end
  end

  # The positional parameters agree in number, and the keywords in name and optionality.
  def compare_parameters(name, type, parameters)
    count = ->(*kinds) { parameters.count { |kind, _| kinds.include?(kind) } }
    keywords = ->(kind) { parameters.filter_map { |own, key| key if own == kind }.sort }
    assert_equal count.call(:req), type.required_positionals.size + type.trailing_positionals.size, name
    assert_equal keywords.call(:keyreq), type.required_keywords.keys.sort, name unless filters?(parameters)
    assert_empty keywords.call(:key) - type.optional_keywords.keys, name
    assert_empty type.optional_keywords.keys - keywords.call(:key), name unless filters?(parameters)
  end

  # The filters of a list are keywords of a private method.
  def filters?(parameters) = parameters.any? { |kind, _| kind == :keyrest }
end
