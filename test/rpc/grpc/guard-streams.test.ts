import { connect } from 'node:http2'
import { Server, ServerCredentials } from '@grpc/grpc-js'
import { expect, it } from 'vitest'
import { guardStreams } from '../../../src/rpc/grpc/guard-streams.ts'
import { duplexPair } from '../../support/rpc/duplex-pair.ts'

// Both methods are private to grpc-js (CONTRIBUTING.md): an upgrade may rename them, or keep them and call others.
it('guardStreams runs before the methods of grpc-js that begin each connection and each call', async () => {
  const server = new Server({ 'grpc.enable_channelz': 0 })
  const calls: string[] = []
  for (const name of ['_sessionHandler', '_streamHandler']) {
    const present: unknown = Reflect.get(server, name)
    if (typeof present !== 'function') throw new Error(`grpc-js: the server has no ${name}`)
    Reflect.set(server, name, (...args: readonly unknown[]) => {
      calls.push(name)
      return Reflect.apply(present, server, args)
    })
  }
  guardStreams(server, () => () => {})
  const [near, far] = duplexPair()
  server.createConnectionInjector(ServerCredentials.createInsecure()).injectConnection(far)
  const client = connect('http://guest', { createConnection: () => near })
  const call = client.request({
    ...{ ':method': 'POST', ':path': '/none.None/None', 'content-type': 'application/grpc' },
  })
  const headers = Promise.withResolvers<unknown>()
  call.once('response', headers.resolve)
  expect(await headers.promise).toMatchObject({ 'grpc-status': '12' })
  expect(calls).toEqual(['_sessionHandler', '_streamHandler'])
  client.destroy()
  server.forceShutdown()
})
