import { randomBytes } from 'node:crypto'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { DescMethod } from '@bufbuild/protobuf'
import { normalized } from '../../base/suggest.mjs'
import { copyRequests } from '../../client/files/copy-file.ts'
import { CopyFileRequest } from '../../gen/agent.ts'
import { UsageError } from '../command.ts'
import { assign, type Draft } from '../methods/assign.ts'
import { readInput } from '../methods/read-input.ts'
import { encodeRequest, parseObject } from '../methods/request-words.ts'
import type { ReferenceCommand } from './command-text.ts'

export class ReferenceState {
  readonly bundleFolder: string | undefined
  /** Whether requests get the values that their command leaves out. */
  readonly hasAutoValues: boolean
  readonly #ids = new Map<string, string>()

  constructor(options: { readonly bundleFolder: string | undefined; readonly hasAutoValues: boolean }) {
    this.bundleFolder = options.bundleFolder
    this.hasAutoValues = options.hasAutoValues
  }

  /** 64 hexadecimal digits, the same in every request. */
  idFor(field: string): string | undefined {
    if (!this.hasAutoValues) return undefined
    const id = this.#ids.get(field) ?? randomBytes(32).toString('hex')
    this.#ids.set(field, id)
    return id
  }
}

/** The encoded requests of a command of kata-agent-ctl: several for a large file, otherwise one. */
export async function* referenceRequests(
  method: DescMethod,
  command: ReferenceCommand,
  state: ReferenceState,
): AsyncGenerator<Uint8Array, void, undefined> {
  const json: Draft = { ...command.json }
  const { words } = command
  if (method.name === 'CopyFile' && json.src !== undefined) {
    const [source, target] = [textOf('src', json.src), textOf('dest', json.dest)]
    for await (const request of copyRequests(source, target)) {
      yield CopyFileRequest.encode(CopyFileRequest.fromPartial(request)).finish()
    }
    return
  }
  if (method.name === 'CreateContainer' && json.image !== undefined)
    throw new UsageError(
      'CreateContainer: image: pulling images is not supported, want OCI and storages, or agent-ctl run --rootfs',
    )
  if (method.name === 'SetPolicy' && json.policy_file !== undefined) {
    json.policy = readInput('policy_file', textOf('policy_file', json.policy_file)).toString()
    delete json.policy_file
  }
  if (method.name === 'ExecProcess' && state.bundleFolder !== undefined && json.process === undefined) {
    const path = join(state.bundleFolder, 'config.json')
    const { process } = parseObject(readInput('--bundle-dir', path).toString(), path)
    if (process === undefined) throw new UsageError(`${path}: process: missing`)
    json.process = process
  }
  for (const word of words) assign(method.input, json, bytesWord(word))
  if (method.name === 'SignalProcess') json.signal = signalOf(json.signal)
  if (method.name === 'WriteStdin' && typeof json.data === 'string') json.data = bytesText(json.data)
  addIds(method, json, state)
  if (method.name === 'GetGuestDetails' && state.hasAutoValues) addDetails(json)
  yield encodeRequest(method.input, json)
}

/** kata-agent-ctl takes a JSON text as the bytes themselves, or as `hex:` and digits. */
function bytesText(text: string): Draft {
  return text.startsWith('hex:') ? { hex: text.slice(4) } : { text }
}

/** kata-agent-ctl knows only the prefix `hex:`. */
function bytesWord(word: string): string {
  return word.replace(/^(data)=(?!hex:)/, '$1=text:')
}

/** Generates container and sandbox ids. The default process is the first one of its container. */
function addIds(method: DescMethod, json: Draft, state: ReferenceState): void {
  const lacks = (name: string) =>
    method.input.fields.some((field) => field.name === name) &&
    !Object.keys(json).some((key) => normalized(key) === normalized(name))
  const add = (name: string, id: string | undefined) => {
    if (id !== undefined) json[name] = id
  }
  if (lacks('container_id')) add('container_id', state.idFor('container_id'))
  if (lacks('sandbox_id')) add('sandbox_id', state.idFor('sandbox_id'))
  const container = json.container_id ?? json.containerId
  if (lacks('exec_id') && typeof container === 'string') add('exec_id', container)
}

/** Asks for all details, unless the command names some. */
function addDetails(json: Draft): void {
  if (Object.keys(json).length > 0) return
  json.mem_block_size = true
  json.mem_hotplug_probe = true
}

/** A name with or without SIG, or a number; SIGKILL by default. */
function signalOf(value: Draft[string] | undefined): number {
  if (value === undefined) return constants.signals.SIGKILL
  const text = String(value)
  if (/^\d{1,3}$/.test(text)) return Number(text)
  const wanted = text.toUpperCase().replace(/^(?!SIG)/, 'SIG')
  const found = Object.entries(constants.signals).find(([name]) => name === wanted)
  if (found === undefined)
    throw new UsageError(`signal: unknown signal ${JSON.stringify(value)}, want SIGTERM or 15`)
  return found[1]
}

function textOf(name: string, value: Draft[string] | undefined): string {
  if (typeof value !== 'string' || value === '') throw new UsageError(`${name}: missing, want a path`)
  return value
}
