import { readFileSync, statSync } from 'node:fs'
import type { Readable } from 'node:stream'
import { fileFailure } from '../../client/files/file-failure.ts'
import { plainText } from '../../client/output/text.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { argument, type MachineContext, print, printJson, timeoutMs } from './command.ts'

/** As the daemon's (src/host/secrets/secrets.ts). */
const MAX_SECRET_BYTES = 16_384

/** Sets, lists or removes secrets. The value comes from a file or stdin, because others can read a command line. */
export async function run(context: MachineContext): Promise<undefined> {
  const options = { timeoutMs: timeoutMs(context) }
  const action = argument(context, 'ACTION')
  const [uuid, tenant] = [argument(context, 'UUID'), argument(context, 'tenant')]
  if (action === 'ls') {
    if (uuid !== '') throw new UsageError('secret ls: takes no UUID')
    return await list(context)
  }
  if (uuid === '') throw new UsageError(`secret ${action}: no UUID, see ./microvm secret --help`)
  if (action === 'rm') {
    if (argument(context, 'FILE') !== '') throw new UsageError('secret rm: takes no FILE')
    await (await context.daemon()).secrets.removeSecret({ uuid, tenant }, options)
    await print(context, 'removed\n')
    return
  }
  if (action !== 'set') throw new UsageError('secret: choose one of set, ls, rm')
  const value = await readValue(context)
  await (await context.daemon()).secrets.setSecret({ uuid, tenant, value }, options)
  await print(context, 'set\n')
}

async function list(context: MachineContext): Promise<undefined> {
  const { secrets } = await (await context.daemon()).secrets.listSecrets(
    {},
    { timeoutMs: timeoutMs(context) },
  )
  for (const { uuid, tenant, setMs } of secrets) {
    const set = new Date(Number(setMs)).toISOString()
    if (context.values.has('json')) await printJson(context, { uuid, tenant, set })
    else await print(context, `${plainText([uuid, set, tenant].join(' ').trimEnd())}\n`)
  }
}

async function readValue(context: MachineContext): Promise<Uint8Array> {
  const path = argument(context, 'FILE') || '-'
  const [shown, value] =
    path === '-' ? ['stdin', await streamBytes(context.stdio.stdin)] : [path, fileBytes(path)]
  if (value.length > 0 && value.length <= MAX_SECRET_BYTES) return value
  throw new UsageError(`${shown}: ${value.length} bytes, want 1 to ${MAX_SECRET_BYTES}`)
}

function fileBytes(path: string): Uint8Array {
  try {
    const { size } = statSync(path)
    if (size > MAX_SECRET_BYTES) throw new UsageError(`${path}: ${size} bytes, want 1 to ${MAX_SECRET_BYTES}`)
    return readFileSync(path)
  } catch (error) {
    if (error instanceof UsageError) throw error
    throw new UsageError(fileFailure(path, error), { cause: error })
  }
}

async function streamBytes(source: Readable): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  for await (const chunk of source) {
    chunks.push(chunk)
    if (Buffer.concat(chunks).length > MAX_SECRET_BYTES) break
  }
  return Buffer.concat(chunks)
}
