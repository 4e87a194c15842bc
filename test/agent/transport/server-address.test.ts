import { describe, expect, it } from 'vitest'
import { parseServerAddress } from '../../../src/agent/transport/server-address.ts'

describe('parseServerAddress', () => {
  it.each([
    ['vsock://-1:1024', { kind: 'vsock', cid: 0xffffffff, port: 1024 }],
    ['vsock://3:4294967294', { kind: 'vsock', cid: 3, port: 4294967294 }],
    ['unix:///run/agent.sock', { kind: 'unix', path: '/run/agent.sock' }],
    ['unix://agent.sock', { kind: 'unix', path: 'agent.sock' }],
    ['unix://@agent', { kind: 'unix', path: '@agent' }],
    ['tcp://127.0.0.1:0', { kind: 'tcp', host: '127.0.0.1', port: 0 }],
    ['tcp://localhost:65535', { kind: 'tcp', host: 'localhost', port: 65535 }],
    ['tcp://[::1]:80', { kind: 'tcp', host: '::1', port: 80 }],
    ['tcp://[fe80::1%eth0]:80', { kind: 'tcp', host: 'fe80::1%eth0', port: 80 }],
  ])('reads %s', (text, address) => {
    expect(parseServerAddress(text)).toEqual(address)
  })

  it.each([
    ['', 'unknown form, want vsock://'],
    ['/run/agent.sock', 'unknown form, want vsock://'],
    ['http://localhost:80', 'unknown form, want vsock://'],
    ['vsock://1024', 'CID:PORT'],
    ['vsock://-2:1024', 'CID:PORT'],
    ['vsock://-1:', 'CID:PORT'],
    ['vsock://-1:1024/', 'CID:PORT'],
    ['vsock://4294967296:1', 'want at most 2^32-1'],
    ['vsock://-1:4294967295', 'want at most 2^32-2'],
    ['unix://', 'want unix://PATH or unix://@NAME'],
    ['unix://@', 'want unix://PATH or unix://@NAME'],
    ['unix://a\0b', 'NUL'],
    [`unix:///${'x'.repeat(107)}`, '108 bytes too long'],
    ['tcp://localhost', 'HOST:PORT'],
    ['tcp://:80', 'HOST:PORT'],
    ['tcp://::1:80', 'IPv6 address in brackets'],
    ['tcp://[localhost]:80', 'HOST:PORT'],
    ['tcp://localhost:80x', 'HOST:PORT'],
    ['tcp://localhost:65536', 'want at most 65535'],
  ])('refuses %j', (text, reason) => {
    expect(() => parseServerAddress(text)).toThrow(reason)
    expect(() => parseServerAddress(text)).toThrow(JSON.stringify(text))
  })
})
