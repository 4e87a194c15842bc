import { describe, expect, it } from 'vitest'
import { addressText, parseAddress } from '../../../src/client/connection/address.ts'

describe('parseAddress', () => {
  it.each([
    ['vsock://3:1024', { kind: 'vsock', cid: 3, port: 1024 }],
    ['unix:///run/agent.sock', { kind: 'unix', path: '/run/agent.sock' }],
    ['unix://@agent', { kind: 'unix', path: '@agent' }],
    ['hvsock:///run/vm.sock:1026', { kind: 'hvsock', path: '/run/vm.sock', port: 1026 }],
    ['tcp://127.0.0.1:80', { kind: 'tcp', host: '127.0.0.1', port: 80 }],
    ['tcp://[::1]:80', { kind: 'tcp', host: '::1', port: 80 }],
  ])('reads %s, and writes it the same way', (text, address) => {
    expect(parseAddress(text)).toEqual(address)
    expect(addressText(parseAddress(text))).toBe(text)
  })

  it("has the agent's port where none is given", () => {
    expect(addressText(parseAddress('vsock://3'))).toBe('vsock://3:1024')
    expect(addressText(parseAddress('hvsock:///run/vm.sock'))).toBe('hvsock:///run/vm.sock:1024')
    expect(addressText(parseAddress('tcp://host'))).toBe('tcp://host:1024')
  })

  it.each([
    ['/run/agent.sock', 'unknown form, want vsock://CID:PORT, unix://PATH'],
    ['vsock://guest:1024', 'no guest, want vsock://CID:PORT with two numbers'],
    ['vsock://3:http', 'port "http": not a number'],
    ['vsock://4294967295:1', 'CID 4294967295 out of range'],
    ['tcp://host:70000', 'port 70000 out of range, want 1 to 65535'],
    ['tcp://host:0', 'port 0 out of range'],
    ['tcp://::1:80', 'want tcp://HOST:PORT with an IPv6 address in brackets'],
    ['unix://', 'empty path'],
    ['unix://@', 'empty path'],
    [`unix:///${'x'.repeat(200)}`, 'too long, want at most 107'],
  ])('refuses %s', (text, reason) => {
    expect(() => parseAddress(text)).toThrow(`address ${JSON.stringify(text)}: `)
    expect(() => parseAddress(text)).toThrow(reason)
  })
})
