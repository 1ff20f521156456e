# frozen_string_literal: true

require_relative "lib/kickstand/version"

Gem::Specification.new do |spec|
  spec.name = "kickstand-client"
  spec.version = Kickstand::VERSION
  spec.authors = ["Kickstand maintainers"]
  spec.summary = "Official client library of Kickstand: helpdesk and fleet"
  spec.description = "Tickets, customers, webhooks, vehicles and rides over Kickstand's REST APIs, with retries, lazy " \
                     "pages, exports, imports and verified webhooks. No dependency beyond Ruby's standard library."
  spec.homepage = "https://github.com/kickstand-dev/kickstand/tree/main/clients/ruby"
  spec.license = "Apache-2.0"
  spec.required_ruby_version = ">= 3.1"
  spec.metadata = {
    "source_code_uri" => spec.homepage,
    "changelog_uri" => "https://github.com/kickstand-dev/kickstand/blob/main/CHANGELOG.md",
    "bug_tracker_uri" => "https://github.com/kickstand-dev/kickstand/issues",
    "rubygems_mfa_required" => "true"
  }
  spec.files = Dir.chdir(__dir__) { Dir["lib/**/*.rb", "sig/**/*.rbs", "examples/first.rb", "README.md", "LICENSE"] }
  spec.require_paths = ["lib"]
end
