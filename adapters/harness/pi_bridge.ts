// omac's extension for pi. `omac start pi` loads it by `-e`, and `omac bridge install pi` puts it into the person's own
// folder of extensions. It needs nothing but Node's own modules, and no network beyond omac's bridge.
//
// * A session activates its directory under its own id when it begins, and again for each prompt and shell command: that
//   is cheap, and so a new secret or a changed skill is known at the next command.
// * The model gets its skills and the rules of the sandbox at the end of the system prompt.
// * Shells inherit this process's variables: it has those of the session, and none by which omac's bridge is reached.
// * A tool that would write outside the worktree is denied by the same guard that the hooks of other agents call.

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent"
import { spawnSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { request } from "node:http"
import { homedir } from "node:os"

type Manifest = { env: Record<string, string>; context: string }
type Reached = { socket?: string; base?: string; tokenFile?: string }

const WITHIN_MS = 15_000
const CONTROL_VARIABLES = ["OMAC_CONTROL_BASE", "OMAC_CONTROL_SOCKET", "OMAC_CONTROL_TOKEN_FILE"]
const GUARD_NAMES: Record<string, string> = { write: "Write", edit: "Edit", bash: "bash" }
const INSTALLED = "" // the command of omac's hooks where a person has this file in a folder of extensions
const hook = INSTALLED || process.env.OMAC_HOOK

// The variables of the bridge, which are taken out of the environment; pi loads this file again for each session.
const kept = ((globalThis as any)[Symbol.for("omac.control")] ??= Object.fromEntries(
  CONTROL_VARIABLES.filter((name) => process.env[name]).map((name) => [name, process.env[name]]),
)) as Record<string, string>

// An agent that omac launched is told where omac is. Another one finds the server that runs on this machine, if any.
function reached(): Reached {
  const { OMAC_CONTROL_BASE: base, OMAC_CONTROL_SOCKET: socket, OMAC_CONTROL_TOKEN_FILE: tokenFile } = kept
  if (tokenFile) return { socket, base, tokenFile }
  const { OMAC_SANDBOX, OMAC_STATE_DIR, XDG_STATE_HOME } = process.env
  const states = XDG_STATE_HOME?.startsWith("/") ? XDG_STATE_HOME : `${homedir()}/.local/state`
  const run = `${OMAC_STATE_DIR || `${states}/omac`}/run/current`
  if (OMAC_SANDBOX === "1" || !existsSync(`${run}/bridge.sock`)) return {}
  return { socket: `${run}/bridge.sock`, tokenFile: `${run}/bridge.token` }
}

function call(action: string, document: object): Promise<any> {
  const { socket, base, tokenFile } = reached()
  const token = readFileSync(tokenFile ?? "", "ascii").trim()
  const options = {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json", Host: "localhost" },
    timeout: WITHIN_MS,
    ...(socket ? { socketPath: socket } : {}),
  }
  return new Promise((resolve, reject) => {
    const asked = request(`${socket ? "http://localhost" : base}/__omac__/${action}`, options, (answer) => {
      let body = ""
      answer.setEncoding("utf8")
      answer.on("data", (part) => (body += part))
      answer.on("end", () => {
        try {
          const content = JSON.parse(body)
          if (answer.statusCode === 200) resolve(content)
          else reject(new Error(`omac refused ${action}: ${content.error}`))
        } catch (problem) {
          reject(problem)
        }
      })
    })
    asked.on("error", reject)
    asked.on("timeout", () => asked.destroy(new Error("omac did not answer in time")))
    asked.end(JSON.stringify(document))
  })
}

// Variables of the session before, or of a skill that is gone, do not outlive it.
const given = ((globalThis as any)[Symbol.for("omac.given")] ??= new Set()) as Set<string>

function give(variables: Record<string, string>): void {
  for (const name of given) if (!(name in variables)) delete process.env[name]
  given.clear()
  for (const name of Object.keys(variables)) given.add(name)
  Object.assign(process.env, variables)
}

function root(cwd: string): string {
  if (process.env.OMAC_WORKDIR) return process.env.OMAC_WORKDIR
  const found = spawnSync("git", ["rev-parse", "--show-toplevel"], { cwd, encoding: "utf8" })
  return found.status === 0 ? found.stdout.trim() : cwd
}

function guarded(tool: string, input: Record<string, unknown>, session: string, cwd: string, dir: string): string | undefined {
  const named = { ...input, ...(typeof input.path === "string" ? { file_path: input.path } : {}) }
  const payload = { hook_event_name: "PreToolUse", session_id: session, cwd, tool_name: GUARD_NAMES[tool], tool_input: named }
  if (!hook) return "omac: the write guard cannot be called: OMAC_HOOK is not set"
  const done = spawnSync("/bin/sh", ["-c", `${hook} pre-tool-use`], {
    input: JSON.stringify(payload),
    env: { ...process.env, ...kept, OMAC_WORKDIR: dir },
    encoding: "utf8",
  })
  return done.status === 0 ? undefined : done.stderr || "omac: the write guard failed"
}

export default function (pi: ExtensionAPI) {
  if (INSTALLED && process.env.OMAC_BRIDGE === "launch") return // this file's twin of the launch is loaded, too
  for (const name of CONTROL_VARIABLES) delete process.env[name]

  let told = false // the person, once in a session

  const activate = async (ctx: any): Promise<Manifest> => {
    if (INSTALLED && !reached().tokenFile) return { env: {}, context: "" } // no omac runs: the session goes on without
    try {
      const manifest = await call("activate", { dir: root(ctx.cwd), session: ctx.sessionManager.getSessionId() })
      give(manifest.env)
      return manifest
    } catch (problem) {
      const context = `omac's skills cannot be used now: ${problem}`
      if (ctx.hasUI && !told) ctx.ui.notify(context, "warning")
      told = true
      return { env: {}, context }
    }
  }

  pi.on("session_start", async (_event, ctx) => void (await activate(ctx)))
  pi.on("session_shutdown", async (_event, ctx) => {
    const document = { dir: root(ctx.cwd), session: ctx.sessionManager.getSessionId() }
    if (reached().tokenFile) await call("deactivate", document).catch(() => undefined)
  })
  pi.on("before_agent_start", async (event, ctx) => {
    const { context } = await activate(ctx)
    const text = [process.env.OMAC_SANDBOX_BRIEFING, context].filter(Boolean).join("\n")
    return text ? { systemPrompt: `${event.systemPrompt}\n\n${text}` } : undefined
  })
  pi.on("tool_call", async (event, ctx) => {
    if (!(event.toolName in GUARD_NAMES)) return undefined
    if (event.toolName === "bash") await activate(ctx)
    const input = event.input as Record<string, unknown>
    const reason = guarded(event.toolName, input, ctx.sessionManager.getSessionId(), ctx.cwd, root(ctx.cwd))
    return reason ? { block: true, reason } : undefined
  })
}
