// omac's plugin for OpenCode. `omac start opencode` and `omac serve opencode` load it by OPENCODE_CONFIG_CONTENT, and
// `omac bridge install opencode` puts it into the person's own folder of plugins. It needs nothing but OpenCode's own
// runtime (Bun), and no network beyond omac's bridge.
//
// * Each session activates its directory under its own id, when it is created and again for each model request and
//   shell command: that is cheap, and so a new secret or a changed skill is known at the next command.
// * The model gets its skills and the rules of the sandbox at the end of the last system message: strict servers refuse
//   a further one.
// * Shells get the session's own variables, and none of those by which omac's bridge is reached.
// * A tool that would write outside the worktree is denied by the same guard that the hooks of other agents call.

import type { Plugin } from "@opencode-ai/plugin"
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { homedir } from "node:os"

type Manifest = { env: Record<string, string>; context: string }

const WITHIN_MS = 15_000
const CONTROL_VARIABLES = ["OMAC_CONTROL_BASE", "OMAC_CONTROL_SOCKET", "OMAC_CONTROL_TOKEN_FILE"]
const GUARD_NAMES: Record<string, string> = { write: "Write", edit: "Edit", multiedit: "MultiEdit", patch: "apply_patch" }

const INSTALLED = "" // the command of omac's hooks where a person has this file in a folder of plugins
const hook = INSTALLED || process.env.OMAC_HOOK

// An agent that omac launched is told where omac is. Another one finds the server that runs on this machine, if any.
function reached(): { socket?: string; tokenFile?: string } {
  const { OMAC_CONTROL_SOCKET, OMAC_CONTROL_TOKEN_FILE, OMAC_SANDBOX, OMAC_STATE_DIR, XDG_STATE_HOME } = process.env
  if (OMAC_CONTROL_TOKEN_FILE) return { socket: OMAC_CONTROL_SOCKET, tokenFile: OMAC_CONTROL_TOKEN_FILE }
  const states = XDG_STATE_HOME?.startsWith("/") ? XDG_STATE_HOME : `${homedir()}/.local/state`
  const run = `${OMAC_STATE_DIR || `${states}/omac`}/run/current`
  if (OMAC_SANDBOX === "1" || !existsSync(`${run}/bridge.sock`)) return {}
  return { socket: `${run}/bridge.sock`, tokenFile: `${run}/bridge.token` }
}

async function call(action: string, document: object): Promise<any> {
  const { socket, tokenFile } = reached()
  const token = readFileSync(tokenFile ?? "", "ascii").trim()
  const base = socket ? "http://localhost" : process.env.OMAC_CONTROL_BASE
  const answer = await fetch(`${base}/__omac__/${action}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify(document),
    signal: AbortSignal.timeout(WITHIN_MS),
    ...(socket ? { unix: socket } : {}),
  } as RequestInit)
  const content = await answer.json()
  if (!answer.ok) throw new Error(`omac refused ${action}: ${content.error}`)
  return content
}

function guarded(tool: string, args: Record<string, unknown>, session: string, directory: string): string | undefined {
  const name = GUARD_NAMES[tool] ?? tool
  const input = { ...args, ...(typeof args.filePath === "string" ? { file_path: args.filePath } : {}) }
  const payload = { hook_event_name: "PreToolUse", session_id: session, cwd: directory, tool_name: name, tool_input: input }
  if (!hook) return "omac: the write guard cannot be called: OMAC_HOOK is not set"
  const done = spawnSync("/bin/sh", ["-c", `${hook} pre-tool-use`], {
    input: JSON.stringify(payload),
    env: { ...process.env, OMAC_WORKDIR: directory },
    encoding: "utf8",
  })
  return done.status === 0 ? undefined : done.stderr || "omac: the write guard failed"
}

export const OmacBridge: Plugin = async ({ directory, worktree }) => {
  const root = worktree && worktree !== "/" ? worktree : directory

  if (INSTALLED && process.env.OMAC_BRIDGE === "launch") return {} // this file's twin of the launch is loaded, too

  const activate = async (session?: string): Promise<Manifest> => {
    if (INSTALLED && !reached().tokenFile) return { env: {}, context: "" } // no omac runs: the session goes on without
    try {
      return await call("activate", { dir: root, ...(session ? { session } : {}) })
    } catch (problem) {
      console.error(`omac: ${problem}`)
      return { env: {}, context: `omac's skills cannot be used now: ${problem}` }
    }
  }

  return {
    event: async ({ event }) => {
      if (event.type === "session.created") await activate(event.properties.info.id)
      if (event.type === "session.deleted")
        await call("deactivate", { dir: root, session: event.properties.info.id }).catch(() => undefined)
    },
    "experimental.chat.system.transform": async ({ sessionID }: { sessionID?: string }, { system }: { system: string[] }) => {
      const { context } = await activate(sessionID)
      const text = [process.env.OMAC_SANDBOX_BRIEFING, context].filter(Boolean).join("\n")
      if (text && system.length > 0) system[system.length - 1] += `\n\n${text}`
      else if (text) system.push(text)
    },
    "shell.env": async ({ sessionID }: { sessionID?: string }, { env }: { env: Record<string, string> }) => {
      const manifest = await activate(sessionID)
      for (const name of CONTROL_VARIABLES) env[name] = ""
      Object.assign(env, manifest.env)
    },
    "tool.execute.before": async ({ tool, sessionID }, { args }) => {
      const denial = tool in GUARD_NAMES || tool === "bash" ? guarded(tool, args, sessionID, root) : undefined
      if (denial) throw new Error(denial)
    },
  }
}
