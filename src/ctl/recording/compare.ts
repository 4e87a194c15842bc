import { isDeepStrictEqual } from 'node:util'
import { StatusCode } from '../../base/errors.ts'
import type { RecordingNotes } from './notes.ts'
import { bytesOf, type Json, type JsonObject, type RecordedCall } from './recording.ts'
import type { Answer } from './wire.ts'

/** Throws when an answer is neither the recorded one nor the one that the notes put in its place. */
export function checkAnswer(call: RecordedCall, answer: Answer, notes: RecordingNotes): void {
  const { answer: recorded, method } = call
  if (recorded === undefined) return
  const difference = notes.differenceAt(call)
  const rules = notes.answeredBy === 'the reference' ? OF_THE_REFERENCE : OF_THIS_AGENT
  if (difference === undefined) {
    if (isSame(method, recorded, answer, rules)) return
    throw new Error(`${inWords(answer)}, want ${inWords(recorded)}`)
  }
  if (isSame(method, recorded, answer, rules))
    throw new Error(`${inWords(answer)}: as recorded, remove the difference '${difference.because}'`)
  const instead = difference.instead(recorded)
  if (!isSame(method, instead, answer, { ...rules, text: unread }))
    throw new Error(`${inWords(answer)}, want ${inWords(instead)}, because ${difference.because}`)
}

interface Rules {
  readonly text: (message: string) => string
  readonly response: (method: string, response: JsonObject) => Json
}

/**
 * Everything but ids, times and sizes is compared. Kata's agent has its own texts of failures; those that callers look
 * for are in test/host/api/refusals/status-table.ts.
 */
const OF_THE_REFERENCE: Rules = {
  text: unread,
  response: (method, response) => (COMPARED[method] ?? whole)(response),
}

/** Only what callers rely on is compared. Texts of failures must be equal. */
const OF_THIS_AGENT: Rules = {
  text: (message) => message,
  response: (method, response) => (RELIED_ON[method] ?? unread)(response),
}

function isSame(method: string, wanted: Answer, answer: Answer, rules: Rules): boolean {
  if (wanted.code !== answer.code) return false
  if (answer.code !== StatusCode.OK) return rules.text(wanted.message) === rules.text(answer.message)
  // For some answers only the status was recorded.
  if (wanted.response === undefined) return true
  if (answer.response === undefined) return false
  return isDeepStrictEqual(rules.response(method, wanted.response), rules.response(method, answer.response))
}

type Comparable = (response: JsonObject) => Json

/** The compared parts of responses of Kata's agent; all other responses are compared whole. */
const COMPARED: Readonly<Record<string, Comparable>> = {
  Version: ({ grpcVersion }) => ({ grpcVersion }),
  GetGuestDetails: ({ agentDetails, supportMemHotplugProbe }) => ({
    supportMemHotplugProbe,
    agentDetails: {
      ...objectIn(agentDetails),
      storageHandlers: sorted(objectIn(agentDetails).storageHandlers),
      version: '',
    },
  }),
  ListInterfaces: ({ Interfaces }) =>
    listIn(Interfaces).map((one) => ({
      ...objectIn(one),
      IPAddresses: withoutLinkLocal(objectIn(one).IPAddresses),
    })),
  ListRoutes: ({ Routes }) => withoutLinkLocal(Routes),
  UpdateRoutes: ({ Routes }) => withoutLinkLocal(Routes),
  StatsContainer: shapeOf,
  GetVolumeStats: ({ usage, volumeCondition }) => ({
    units: listIn(usage).map((one) => objectIn(one).unit ?? null),
    volumeCondition,
  }),
  GetIPTables: withoutComments,
}

/** The parts of a response that shims rely on. */
const RELIED_ON: Readonly<Record<string, Comparable>> = {
  Check: whole,
  WaitProcess: whole,
  WriteStdin: whole,
  GetOOMEvent: whole,
  UpdateInterface: whole,
  StatsContainer: shapeOf,
  GetIPTables: withoutComments,
  GetGuestDetails: ({ agentDetails, supportMemHotplugProbe }) => ({
    supportMemHotplugProbe,
    supportsSeccomp: objectIn(agentDetails).supportsSeccomp,
  }),
}

function whole(response: JsonObject): Json {
  return response
}

function unread(): string {
  return ''
}

/** The names of the fields and the kinds of their values; a list or map has only a kind. */
function shapeOf(value: Json): Json {
  if (typeof value !== 'object' || value === null) return typeof value
  if (Array.isArray(value)) return 'list'
  const fields = Object.entries(value).map(([name, field]) => [
    name,
    MAPS.includes(name) || field === undefined ? 'map' : shapeOf(field),
  ])
  return Object.fromEntries(fields)
}

const MAPS = ['stats', 'hugetlbStats']

/** The kernel adds link-local addresses and their routes in its own time. */
function withoutLinkLocal(list: Json | undefined): Json {
  return listIn(list).filter((one) => {
    const { address, dest } = objectIn(one)
    return !`${address ?? dest}`.startsWith('fe80:')
  })
}

/** Comment lines contain the time. */
function withoutComments({ data }: JsonObject): Json {
  const lines = `${bytesOf(data) ?? ''}`.split('\n')
  return lines.filter((line) => !line.startsWith('#'))
}

function sorted(list: Json | undefined): Json {
  return listIn(list).toSorted()
}

function objectIn(value: Json | undefined): JsonObject {
  return typeof value === 'object' && value !== null && !isList(value) ? value : {}
}

function listIn(value: Json | undefined): readonly Json[] {
  return isList(value) ? value : []
}

/** Array.isArray does not narrow to a readonly list. */
function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value)
}

function inWords({ code, message, response }: Answer): string {
  return code === StatusCode.OK ? `answered ${JSON.stringify(response)}` : `failed with ${code}: ${message}`
}
