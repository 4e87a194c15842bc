import { spawn } from 'node:child_process'
import { Socket } from 'node:net'
import { createInterface } from 'node:readline'
import type { AgentEvent, AgentOrder } from './orders.ts'
import { RECORD_BYTES } from './record.ts'

function report(event: AgentEvent): void {
  process.stdout.write(`${JSON.stringify(event)}\n`)
}

function reportRecords(channel: Socket): void {
  let pending = Buffer.alloc(0)
  channel.on('data', (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk])
    for (; pending.length >= RECORD_BYTES; pending = pending.subarray(RECORD_BYTES)) {
      report({ event: 'record', hex: pending.subarray(0, RECORD_BYTES).toString('hex') })
    }
  })
}

function execute(order: AgentOrder, channel: Socket): void {
  switch (order.order) {
    case 'shell': {
      const child = spawn('/bin/sh', ['-c', order.script], { stdio: ['ignore', 'inherit', 'inherit'] })
      child.on('exit', (status) => report({ event: 'shell-ended', pid: child.pid ?? 0, status }))
      return
    }
    case 'send':
      channel.write(Buffer.from(order.hex, 'hex'), () => report({ event: 'sent' }))
      return
    case 'exit':
      process.exit(order.status)
  }
}

const channel = new Socket({ fd: 3 })
reportRecords(channel)
for (const name of ['SIGUSR1', 'SIGUSR2', 'SIGHUP', 'SIGTERM'] as const) {
  process.on(name, () => report({ event: 'signal', name }))
}
createInterface({ input: process.stdin }).on('line', (line) => {
  const order: AgentOrder = JSON.parse(line)
  execute(order, channel)
})
report({ event: 'started', pid: process.pid, arguments: process.argv.slice(2) })
