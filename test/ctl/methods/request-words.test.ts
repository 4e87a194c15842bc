import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { decodeJson } from '../../../src/client/json/to-json.ts'
import { UsageError } from '../../../src/ctl/command.ts'
import { METHODS } from '../../../src/ctl/methods/method-names.ts'
import { encodeWords } from '../../../src/ctl/methods/request-words.ts'
import { describedMethod } from '../../../src/ctl/methods/schema.ts'
import {
  CopyFileRequest,
  CreateContainerRequest,
  ExecProcessRequest,
  SignalProcessRequest,
  UpdateRoutesRequest,
} from '../../../src/gen/agent.ts'
import { allRecordings } from '../../recordings/recording.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

async function encode(method: string, words: readonly string[], stdin = ''): Promise<Uint8Array> {
  return await encodeWords(describedMethod(method).input, words, Readable.from([Buffer.from(stdin)]))
}

describe('encodeWords', () => {
  it('reads fields with paths, in the words of the proto and of OCI', async () => {
    const words = [
      'container_id=web',
      'execId=e',
      'process.args[0]=sh',
      'process.Args[1]=-c',
      'process.cwd=/',
    ]
    const request = ExecProcessRequest.decode(await encode('ExecProcess', words))
    expect(request).toMatchObject({ containerId: 'web', execId: 'e' })
    expect(request.process).toMatchObject({ Args: ['sh', '-c'], Cwd: '/' })
  })

  it('adds to a list without an index, and to maps by their keys', async () => {
    const words = ['OCI.hostname=h', 'OCI.annotations[a.b/c]=x', 'OCI.process.args=a', 'OCI.process.args=b']
    const request = CreateContainerRequest.decode(await encode('CreateContainer', words))
    expect(request.OCI?.Annotations).toEqual({ 'a.b/c': 'x' })
    expect(request.OCI?.Process?.Args).toEqual(['a', 'b'])
  })

  it('reads JSON from a word, a file and stdin, with fields put into it', async () => {
    const file = join(temporaryFolder(), 'request.json')
    writeFileSync(file, '{"container_id": "web", "signal": 9}')
    const wanted = { containerId: 'web', signal: 15 }
    for (const word of ['json://{"container_id": "web"}', `file://${file}`, '-', '{"containerId": "web"}']) {
      const words = [word, 'signal=15']
      const payload = await encode('SignalProcess', words, '{"container_id": "web"}')
      expect(SignalProcessRequest.decode(payload)).toMatchObject(wanted)
    }
  })

  it.each([
    ['text:hé', Buffer.from('hé')],
    ['plain', Buffer.from('plain')],
    ['hex:00ff', Buffer.from([0, 255])],
    ['base64:AP8=', Buffer.from([0, 255])],
  ])('reads bytes given as %s', async (text, bytes) => {
    const request = CopyFileRequest.decode(await encode('CopyFile', [`data=${text}`]))
    expect(Buffer.from(request.data)).toEqual(bytes)
  })

  it('knows enums by name and number, and 64-bit numbers', async () => {
    const words = ['routes.Routes[0].family=v6', 'routes.Routes[1].family=1']
    const request = UpdateRoutesRequest.decode(await encode('UpdateRoutes', words))
    expect(request.routes?.Routes.map(({ family }) => family)).toEqual([1, 1])
    const copy = CopyFileRequest.decode(await encode('CopyFile', ['file_size=9223372036854775807']))
    expect(copy.fileSize).toBe(9_223_372_036_854_775_807n)
  })

  it.each([
    [
      'SignalProcess',
      ['signl=1'],
      'signl: unknown field of grpc.SignalProcessRequest, did you mean "signal"?',
    ],
    ['SignalProcess', ['signal=x'], 'signal: "x", want a whole number (uint32)'],
    ['SignalProcess', ['signal=-1'], 'signal: "-1", want 0 to 4294967295 (uint32)'],
    ['SignalProcess', ['container_id'], '"container_id": not understood, want FIELD=VALUE'],
    ['SignalProcess', ['container_id.x=1'], 'container_id: has no fields'],
    ['ExecProcess', ['process.args[1]=x'], 'process.args[1]: want [0] first'],
    ['ExecProcess', ['process.user.uid=x'], 'process.User.UID: "x", want a whole number'],
    ['ExecProcess', ['process={"Args": "sh"}'], 'process.Args: "sh", want a list ([…])'],
    [
      'ExecProcess',
      ['{"process": {"argz": []}}'],
      'process.argz: unknown field of grpc.Process, did you mean "Args"?',
    ],
    ['ExecProcess', ['process=x'], 'process: Unexpected token'],
    [
      'UpdateRoutes',
      ['routes.Routes[0].family=v5'],
      'routes.Routes[0].family: unknown value "v5" of types.IPFamily, did you mean "v4"?',
    ],
    ['CopyFile', ['data=hex:0'], 'data: {"hex":"0"}, want base64'],
    ['CopyFile', ['data=file:/dev/zero'], 'data: /dev/zero: not a file'],
    ['CopyFile', ['data=file:/nonexistent'], 'data: /nonexistent: no such file or directory'],
    ['SignalProcess', ['json://{'], 'json://{: Expected property name'],
    ['SignalProcess', ['json://[]'], 'json://[]: not an object, want {…}'],
    ['SignalProcess', ['-'], 'stdin: empty'],
    ['SignalProcess', ['file:///nonexistent'], '/nonexistent: no such file or directory'],
  ])('refuses %s %j, naming the field', async (method, words, text) => {
    const encoding = encode(method, words)
    await expect(encoding).rejects.toThrow(UsageError)
    await expect(encoding).rejects.toThrow(text)
  })
})

describe('the fields of all messages', () => {
  it('have names that differ in more than case and underscores', () => {
    const seen = new Set<string>()
    const clashes: string[] = []
    const visit = (message: ReturnType<typeof describedMethod>['input']) => {
      if (seen.has(message.typeName)) return
      seen.add(message.typeName)
      const names = message.fields.map(({ name }) => name.toLowerCase().replaceAll('_', ''))
      if (new Set(names).size < names.length) clashes.push(message.typeName)
      for (const field of message.fields) if (field.message !== undefined) visit(field.message)
    }
    for (const { method, service } of METHODS) visit(describedMethod(`${service}/${method}`).input)
    expect(clashes).toEqual([])
  })
})

describe('recorded requests', () => {
  it('are the same messages when they are given as the JSON of the recording', async () => {
    const calls = allRecordings().flatMap(({ lines }) => lines.filter((line) => line.kind === 'call'))
    const byMethod = Map.groupBy(calls, ({ method, service }) => `${service}/${method}`)
    for (const [name, all] of byMethod) {
      const { input } = describedMethod(name)
      for (const { line, request, requestBytes } of all.slice(0, 5)) {
        if (requestBytes === undefined || requestBytes.length > 60_000) continue
        const payload = await encodeWords(input, [JSON.stringify(request)], Readable.from([]))
        expect(decodeJson(input, payload), `${name}, line ${line}`).toEqual(decodeJson(input, requestBytes))
      }
    }
    expect(byMethod.size).toBeGreaterThan(20)
  })
})
