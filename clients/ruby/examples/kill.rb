# frozen_string_literal: true

# Creates KICKSTAND_COUNT tickets one after another, and prints their ids, while the server may be
# killed and started again at any moment. Each ticket exists exactly once afterwards.

require "kickstand"

$stdout.sync = true
client = Kickstand::Helpdesk.new(max_retries: 30, timeout: 5, sleep: ->(seconds) { sleep([seconds, 0.25].min) })
Integer(ENV.fetch("KICKSTAND_COUNT")).times do |i|
  puts client.tickets.create(subject: "record #{i}", customer: { email: "record@example.com" }).id
end
